//! The norms of this repository, each checked by code.

mod dependencies;
mod fuzz;
mod golden;
mod layers;
mod log;
mod options;
mod pages;
mod rust;
mod text;

use anyhow::Result;

pub(crate) use golden::accept as accept_golden;

use crate::metadata::packages;
use crate::tree::files;

/// Everything in the tree that breaks a norm.
pub(crate) fn problems() -> Result<Vec<String>> {
    let (packages, files) = (packages()?, files()?);
    println!("tidy: {} files", files.len());
    let mut problems = Vec::new();
    problems.extend(layers::problems(&packages));
    problems.extend(dependencies::problems(&packages, &files));
    problems.extend(fuzz::problems(&packages, &files));
    problems.extend(text::problems(&files));
    problems.extend(rust::problems(&files));
    problems.extend(options::problems(&files));
    problems.extend(pages::problems(&packages, &files));
    problems.extend(log::problems(&files));
    problems.extend(golden::problems(&files)?);
    Ok(problems)
}
