//! A precompiled `<immintrin.h>` for the cache of compiled C.
//!
//! Most of the text that clang parses for native code is this header, which takes a fifth of a compilation. The cache
//! lets clang parse it once for each set of flags. Objects are the same as without, byte for byte.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsString;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::Path;
use std::process::Command;

/// What a text contains that includes the header.
const INCLUDE: &[u8] = b"#include <immintrin.h>";
/// The source of the precompiled header.
const SOURCE: &str = "precompiled.h";
/// The option of a compilation that is followed by a path.
const OUTPUT: &str = "-o";
/// Options of compilations that do not read the header: for the kernel, and for a processor without AVX-512.
const WITHOUT: [&str; 2] = ["--target=bpf", "-DWEIR_KERNELS=0"];
/// Prefixes of options that do not concern the header: a path, the end of a compilation, and the linker.
const OTHERS: [&str; 3] = ["-ffile-prefix-map=", "-c", "-Wl,"];

/// The options that let clang use the header in the compilation with `args`, where the source is the first one. `texts`
/// are the texts of the compilation. Makes the header in `folder` if it is not there yet.
///
/// # Errors
/// The compiler cannot be started, or `folder` is not writable.
pub fn options(real: &Path, folder: &Path, args: &[OsString], texts: &[u8]) -> io::Result<Vec<OsString>> {
    let given = |option: &str| args.iter().any(|arg| arg == option);
    let includes = || texts.windows(INCLUDE.len()).any(|text| text == INCLUDE);
    if !given("-c") || WITHOUT.into_iter().any(given) || !includes() {
        return Ok(Vec::new());
    }
    let flags = flags(args);
    let mut hasher = DefaultHasher::new();
    flags.hash(&mut hasher);
    let header = folder.join(format!("precompiled-{:016x}", hasher.finish()));
    if !header.exists() && !make(real, folder, &flags, &header)? {
        // The compilation itself shows what is wrong.
        return Ok(Vec::new());
    }
    Ok(vec!["-include-pch".into(), header.into()])
}

/// The options on which the header depends.
fn flags(args: &[OsString]) -> Vec<&OsString> {
    let mut flags = Vec::new();
    let mut rest = args.iter().skip(1);
    while let Some(arg) = rest.next() {
        if *arg == OUTPUT {
            rest.next();
        } else if !OTHERS.iter().any(|other| arg.as_encoded_bytes().starts_with(other.as_bytes())) {
            flags.push(arg);
        }
    }
    flags
}

/// Makes the header, under another name first: several processes may make it at the same time. Returns false if the
/// compiler refuses.
fn make(real: &Path, folder: &Path, flags: &[&OsString], header: &Path) -> io::Result<bool> {
    let source = folder.join(SOURCE);
    if !source.exists() {
        let unfinished = source.with_extension(std::process::id().to_string());
        fs::write(&unfinished, [INCLUDE, b"\n"].concat())?;
        // A second file would have another time, for which clang refuses what was made from the first one.
        match fs::hard_link(&unfinished, &source) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => fs::remove_file(&unfinished)?,
        }
    }
    let unfinished = header.with_extension(std::process::id().to_string());
    let mut command = Command::new(real);
    command.args(["-x", "c-header"]).arg(&source).args(flags).arg("-o").arg(&unfinished);
    if !command.output()?.status.success() {
        return Ok(false);
    }
    fs::rename(&unfinished, header)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::options;
    use std::ffi::OsString;
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    const TEXT: &str = "#include <immintrin.h>\nint popcount(int x) { return _mm_popcnt_u32(x); }\n";

    fn args(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn an_object_is_the_same_with_and_without_it() {
        let folder = std::env::temp_dir().join(format!("xtask-precompiled-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the folder can be made");
        let [source, object] = ["a.c", "a.o"].map(|name| folder.join(name));
        fs::write(&source, TEXT).expect("the folder can be written to");
        let given = args(&format!(
            "{} -std=c11 -ffreestanding -w -O3 -march=native -shared -fPIC -Wl,-z,defs -c -I {} -Qunused-arguments -o {}",
            source.display(),
            folder.display(),
            object.display()
        ));
        let real = Path::new(crate::compile_once::COMPILER);
        let precompiled = options(real, &folder, &given, TEXT.as_bytes()).expect("clang runs");
        assert_eq!(precompiled.len(), 2, "clang makes it");
        assert_eq!(options(real, &folder, &given, TEXT.as_bytes()).expect("it is there"), precompiled);
        let [without, with] = [&[], &precompiled[..]].map(|more| {
            let status = Command::new(real).args(&given).args(more).status().expect("clang runs");
            assert!(status.success());
            fs::read(&object).expect("clang made it")
        });
        assert!(without == with);
        fs::remove_dir_all(folder).expect("it was made above");
    }

    #[test]
    fn only_native_compilations_that_include_it_get_it() {
        let nowhere = Path::new("/nonexistent");
        let without_avx512 = ("a.c -DWEIR_KERNELS=0 -mno-avx512f -c", TEXT);
        for (line, text) in [("a.c -c", "int a;"), ("a.o -shared", TEXT), ("a.c --target=bpf -c", TEXT), without_avx512]
        {
            assert!(options(nowhere, nowhere, &args(line), text.as_bytes()).expect("nothing runs").is_empty());
        }
    }
}
