//! `weir bench`
pub fn run(_: &crate::cli::BenchOptions) -> Result<(), crate::failure::Failure> {
    Ok(())
}
