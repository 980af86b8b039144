/work/main/tools/schema/target/debug/deps/tidings_schema_tool-711f3bbdd6702ca0.d: src/main.rs src/descriptions.rs src/golang.rs src/openapi.rs src/proto.rs src/table.rs

/work/main/tools/schema/target/debug/deps/tidings_schema_tool-711f3bbdd6702ca0: src/main.rs src/descriptions.rs src/golang.rs src/openapi.rs src/proto.rs src/table.rs

src/main.rs:
src/descriptions.rs:
src/golang.rs:
src/openapi.rs:
src/proto.rs:
src/table.rs:
