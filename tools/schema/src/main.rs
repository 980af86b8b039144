//! Writes the table of built-in Kubernetes types that `tidings-schema` is built with, and what the types mean.
//!
//! Published sources are joined, as none of them knows all of it:
//! the `.proto` files know the wire types, the Go structs know the JSON tags and which fields are pointers,
//! the OpenAPI documents know the kinds, the list types, what is required and the defaults, the OpenAPI definitions that
//! Kubernetes is built with know descriptions and enums.
//!
//! ```text
//! go mod download k8s.io/{api,apimachinery,apiextensions-apiserver}@v0.36.4 k8s.io/kubernetes@v1.36.4
//! cargo run -- ~/go/pkg/mod/k8s.io/{api,apimachinery,apiextensions-apiserver}@v0.36.4 \
//!     ~/go/pkg/mod/k8s.io/kubernetes@v1.36.4 ../../crates/tidings-schema/src
//! ```

mod descriptions;
mod golang;
mod openapi;
mod proto;
mod table;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> Result<()> {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [api, apimachinery, apiextensions, kubernetes, out] = args.as_slice() else {
        bail!(
            "usage: tidings-schema-tool API_DIR APIMACHINERY_DIR APIEXTENSIONS_DIR KUBERNETES_DIR OUT_DIR"
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
    let openapi = openapi::OpenApi::read(&kubernetes.join("api/openapi-spec/v3"))?;
    let versions = [api, apimachinery, apiextensions].map(|dir| name_of(dir));
    let text = table::write(&messages, &structs, &openapi, &versions)?;
    std::fs::write(out.join("builtin.table"), text)?;

    let definitions = kubernetes.join("pkg/generated/openapi/zz_generated.openapi.go");
    let descriptions = descriptions::Descriptions::read(&read(&definitions)?)?;
    let names = table::names(&messages, &openapi)?;
    let names = names.iter().map(|(short, full)| (short.clone(), &**full));
    let text = descriptions.write(names)?;
    // Without a time in it, so that the same input makes the same file.
    let mut packed = GzEncoder::new(
        File::create(out.join("descriptions.gz"))?,
        Compression::best(),
    );
    packed.write_all(text.as_bytes())?;
    packed.finish()?;
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
