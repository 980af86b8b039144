/work/main/tools/schema/target/debug/deps/tidings_schema_tool-75c8fd705f316051.d: src/main.rs src/descriptions.rs src/golang.rs src/openapi.rs src/proto.rs src/table.rs

/work/main/tools/schema/target/debug/deps/tidings_schema_tool-75c8fd705f316051: src/main.rs src/descriptions.rs src/golang.rs src/openapi.rs src/proto.rs src/table.rs

src/main.rs:
src/descriptions.rs:
src/golang.rs:
src/openapi.rs:
src/proto.rs:
src/table.rs:
