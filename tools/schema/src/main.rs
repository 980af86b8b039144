//! Writes the table of built-in Kubernetes types that `tidings-schema` is built with.
//!
//! Three published sources are joined, as none of them knows all of it:
//! the `.proto` files know the wire types, the Go structs know the JSON tags and which fields are pointers,
//! the OpenAPI documents know the kinds, the list types, what is required and the defaults.
//!
//! ```text
//! go mod download k8s.io/{api,apimachinery,apiextensions-apiserver}@v0.36.4 k8s.io/kubernetes@v1.36.4
//! cd ~/go/pkg/mod/k8s.io
//! tidings-schema-tool {api,apimachinery,apiextensions-apiserver}@v0.36.4 kubernetes@v1.36.4/api/openapi-spec/v3 \
//!     > crates/tidings-schema/src/builtin.table
//! ```

mod golang;
mod openapi;
mod proto;
mod table;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [api, apimachinery, apiextensions, documents] = args.as_slice() else {
        bail!(
            "usage: tidings-schema-tool API_DIR APIMACHINERY_DIR APIEXTENSIONS_DIR OPENAPI_V3_DIR"
        );
    };
    let mut messages = proto::Messages::new();
    let mut structs = golang::Structs::new();
    let modules = [
        (api, "k8s.io.api"),
        (apimachinery, "k8s.io.apimachinery"),
        // With a hyphen, as OpenAPI has it: nothing outside of its `.proto` file names it.
        (apiextensions, "k8s.io.apiextensions-apiserver"),
    ];
    for (root, import) in modules {
        for dir in package_dirs(root)? {
            let inner = dir.strip_prefix(root)?.to_string_lossy().replace('/', ".");
            let package = format!("{import}.{inner}");
            proto::read(&package, &read(&dir.join(PROTO))?, &mut messages)?;
            for file in go_files(&dir)? {
                golang::read(&package, &read(&file)?, &mut structs)?;
            }
        }
    }
    let openapi = openapi::OpenApi::read(documents)?;
    let versions = [api, apimachinery, apiextensions].map(|dir| name_of(dir));
    let text = table::write(&messages, &structs, &openapi, &versions)?;
    print!("{text}");
    Ok(())
}

const PROTO: &str = "generated.proto";

/// The directories below `root` that hold a `.proto` file.
fn package_dirs(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(dir) = pending.pop() {
        if dir.join(PROTO).is_file() {
            found.push(dir.clone());
        }
        for entry in dir
            .read_dir()
            .with_context(|| format!("{}", dir.display()))?
        {
            let path = entry?.path();
            if path.is_dir() {
                pending.push(path);
            }
        }
    }
    Ok(found)
}

/// The hand-written Go files of a package: the generated ones declare no types.
fn go_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in dir.read_dir()? {
        let path = entry?.path();
        let name = name_of(&path);
        if name.ends_with(".go") && !name.ends_with("_test.go") && !name.contains("generated") {
            files.push(path);
        }
    }
    Ok(files)
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))
}
