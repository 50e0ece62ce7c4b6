//! The form in which Weir gets the policies of a test: as their text, or as bundles that are compiled from it.
//!
//! A test names the text (`p.weir`). If it runs with bundles, a bundle is compiled beside each text that it gives to
//! Weir, and Weir gets that.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The form of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Bundle,
}

thread_local! {
    /// A test gives policies to Weir on its own thread.
    static FORM: Cell<Form> = const { Cell::new(Form::Text) };
}

/// Runs `test` with policies of a form.
pub fn with_form(form: Form, test: impl FnOnce()) {
    FORM.set(form);
    test();
    FORM.set(Form::Text);
}

/// Whether this test gives bundles to Weir.
pub fn is_bundle() -> bool {
    FORM.get() == Form::Bundle
}

/// The file that Weir gets for a policy.
pub fn given(policy: &Path) -> PathBuf {
    match FORM.get() {
        Form::Text => policy.to_owned(),
        Form::Bundle => compiled(policy),
    }
}

/// Compiles a policy to a bundle with the ending `weirb`.
pub fn compiled(policy: &Path) -> PathBuf {
    let bundle = policy.with_extension("weirb");
    let folder = policy.parent().expect("a policy is in a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.arg("compile").arg(policy).arg("-o").arg(&bundle).current_dir(folder).output();
    let output = output.expect("the program was built");
    assert!(output.status.success(), "{}: {}", policy.display(), String::from_utf8_lossy(&output.stderr));
    bundle
}
