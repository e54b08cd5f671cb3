//! What `cargo metadata` says about the workspace and its dependencies.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A package: of the workspace, or one that it depends on.
#[derive(Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The SPDX expression of its manifest.
    pub(crate) license: Option<String>,
    /// Whether it belongs to the workspace.
    pub(crate) is_member: bool,
    /// Its folder.
    pub(crate) dir: PathBuf,
    /// Names of the packages it declares as dependencies of any kind.
    pub(crate) dependencies: Vec<String>,
    /// Of these, the names of those that its tests are not the only ones to need.
    pub(crate) shipped_dependencies: Vec<String>,
}

/// All packages of the locked dependency graph.
pub(crate) fn packages() -> Result<Vec<Package>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .output()
        .context("run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let members = strings(&metadata["workspace_members"]);
    let packages = metadata["packages"].as_array().context("no `packages`")?;
    packages.iter().map(|package| read(package, &members)).collect()
}

fn read(package: &Value, members: &[String]) -> Result<Package> {
    let text = |key: &str| package[key].as_str().map(ToOwned::to_owned);
    let manifest = PathBuf::from(text("manifest_path").context("no `manifest_path`")?);
    let dependencies = || package["dependencies"].as_array().into_iter().flatten();
    let name = |one: &Value| one["name"].as_str().map(ToOwned::to_owned);
    Ok(Package {
        name: text("name").context("no `name`")?,
        version: text("version").context("no `version`")?,
        license: text("license"),
        is_member: text("id").is_some_and(|id| members.contains(&id)),
        dir: manifest.parent().context("a manifest has a folder")?.to_owned(),
        dependencies: dependencies().filter_map(name).collect(),
        shipped_dependencies: dependencies().filter(|one| one["kind"] != "dev").filter_map(name).collect(),
    })
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|one| one.as_str().map(ToOwned::to_owned)).collect()
}
