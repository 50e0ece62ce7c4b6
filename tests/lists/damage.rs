//! Damages to list files. Each gives the file, and the text that a person would find in it.

use crate::seeds::{Content, Seed};

/// A damaged list.
pub struct Damaged {
    /// Description of the damage.
    pub how: String,
    pub bytes: Vec<u8>,
    /// The text in it, decoded and decompressed.
    pub text: String,
}

impl Damaged {
    /// The undamaged list.
    pub fn whole(seed: &Seed) -> Self {
        Damaged::bytes("nothing", seed.bytes())
    }

    fn bytes(how: impl Into<String>, bytes: Vec<u8>) -> Self {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Damaged { how: how.into(), bytes, text }
    }

    fn text(how: impl Into<String>, text: String) -> Self {
        Damaged { how: how.into(), bytes: text.clone().into_bytes(), text }
    }

    /// Bytes that contain the text in another encoding.
    fn packed(how: impl Into<String>, bytes: Vec<u8>, text: &str) -> Self {
        Damaged { how: how.into(), bytes, text: text.to_owned() }
    }
}

/// Replacements of line ends.
const LINE_ENDS: &[&str] = &[
    "\r\n",
    "\r",
    "\n\r",
    "\r\r\n",
    "\u{b}",
    "\u{c}",
    "\u{1c}",
    "\u{1e}",
    "\u{85}",
    "\u{2028}",
    "\u{2029}",
    "\0",
    "\0\n",
    "",
    " ",
    "\t",
    "  \t ",
    ",",
    ", ",
    ";",
    "; ",
    " ; ",
    "|",
    " | ",
    "\\n",
    "\\r\\n",
    "<br>",
    "<br/>\n",
    "\u{a0}",
    "\u{feff}",
    "\n\u{feff}",
    " - ",
    " -- ",
    "/",
    " /",
    ":",
    "\n#",
    "\n;",
    " # ",
    "#",
    "\u{200b}",
    "\u{1b}[0m",
    "\" \"",
    "\",\"",
    "'",
    " and ",
    "=",
    "+",
    "\u{1a}",
];

/// Replacements of spaces and commas.
const SEPARATORS: &[&str] =
    &[";", "\t", "|", ", ", " , ", " ", "", ",,", ":", "-", "\u{a0}", "\0", "\u{c}", "/", "\",\"", "\r", "\n"];

/// All damages of a seed, always the same.
pub fn all(seed: &Seed) -> Vec<Damaged> {
    let bytes = seed.bytes();
    let mut damages = truncated(&bytes);
    damages.extend(wrapped(&bytes));
    if let Content::Text(text) = seed.content {
        damages.extend(line_ends(text));
        damages.extend(separators(text));
        damages.extend(encodings(text));
        damages.extend(lines_changed(text));
        damages.extend(other_formats(text));
    }
    damages
}

/// Replaces all line ends, the first, a middle one, the last, or those of the second half.
fn line_ends(text: &str) -> Vec<Damaged> {
    let lines: Vec<&str> = text.lines().collect();
    let mut damages = Vec::new();
    for end in LINE_ENDS {
        let join = |changed: &dyn Fn(usize) -> bool| {
            let end = |at| if changed(at) { end } else { "\n" };
            lines.iter().enumerate().flat_map(|(at, line)| [*line, end(at)]).collect::<String>()
        };
        damages.push(Damaged::text(format!("all line ends {end:?}"), join(&|_| true)));
        let (middle, last) = (lines.len() / 2, lines.len() - 1);
        for one in [0, middle, last] {
            damages.push(Damaged::text(format!("line end {one} {end:?}"), join(&|at| at == one)));
        }
        damages.push(Damaged::text(format!("line ends from {middle} {end:?}"), join(&|at| at >= middle)));
    }
    damages
}

/// Replaces separators within lines.
fn separators(text: &str) -> Vec<Damaged> {
    let mut damages = Vec::new();
    for old in [",", " ", "\t", "/", "-", "."] {
        for new in SEPARATORS.iter().filter(|new| text.contains(old) && **new != old) {
            damages.push(Damaged::text(format!("{old:?} as {new:?}"), text.replace(old, new)));
            let (head, tail) = text.rsplit_once(old).expect("it has one");
            damages.push(Damaged::text(format!("the last {old:?} as {new:?}"), format!("{head}{new}{tail}")));
        }
    }
    damages
}

fn encodings(text: &str) -> Vec<Damaged> {
    let units = |order: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(order).collect::<Vec<u8>>();
    let wide = |order: fn(u32) -> [u8; 4]| text.chars().flat_map(|c| order(c.into())).collect::<Vec<u8>>();
    let marked = |mark: &[u8], bytes: Vec<u8>| [mark, &bytes].concat();
    let ebcdic = text.bytes().map(|byte| if byte.is_ascii_digit() { byte + 0xc0 } else { byte ^ 0x40 }).collect();
    vec![
        Damaged::packed("UTF-8 mark", marked(b"\xef\xbb\xbf", text.into()), text),
        Damaged::packed("two UTF-8 marks", marked(b"\xef\xbb\xbf\xef\xbb\xbf", text.into()), text),
        Damaged::packed("UTF-16LE", units(u16::to_le_bytes), text),
        Damaged::packed("UTF-16BE", units(u16::to_be_bytes), text),
        Damaged::packed("UTF-16LE with mark", marked(b"\xff\xfe", units(u16::to_le_bytes)), text),
        Damaged::packed("UTF-16BE with mark", marked(b"\xfe\xff", units(u16::to_be_bytes)), text),
        Damaged::packed("UTF-32LE", wide(u32::to_le_bytes), text),
        Damaged::packed("UTF-32BE with mark", marked(b"\0\0\xfe\xff", wide(u32::to_be_bytes)), text),
        Damaged::packed("EBCDIC", ebcdic, text),
        Damaged::packed("base64", text.bytes().map(|byte| b'A' + byte % 26).collect(), text),
        Damaged::packed("percent", text.bytes().flat_map(|byte| format!("%{byte:02x}").into_bytes()).collect(), text),
        Damaged::packed("full width digits", text.chars().map(full_width).collect::<String>().into_bytes(), text),
    ]
}

fn full_width(c: char) -> char {
    c.to_digit(10).map_or(c, |digit| char::from_u32(0xff10 + digit).expect("a digit"))
}

/// Truncates after every byte, or removes bytes in the middle.
fn truncated(bytes: &[u8]) -> Vec<Damaged> {
    let step = bytes.len().div_ceil(80);
    let mut damages = Vec::new();
    for at in (0..bytes.len()).step_by(step) {
        damages.push(Damaged::bytes(format!("cut at {at}"), bytes[..at].to_vec()));
    }
    for at in (step..bytes.len()).step_by(4 * step) {
        let zeros = [&bytes[..at], &vec![0; bytes.len() - at]].concat();
        damages.push(Damaged::bytes(format!("zeros from {at}"), zeros));
        damages.push(Damaged::bytes(format!("begun at {at}"), bytes[at..].to_vec()));
        let hole = bytes.len().min(at + 5);
        damages.push(Damaged::bytes(format!("a hole at {at}"), [&bytes[..at], &bytes[hole..]].concat()));
    }
    damages
}

/// Wraps the list into an archive or an HTML page.
fn wrapped(bytes: &[u8]) -> Vec<Damaged> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let length = u16::try_from(bytes.len()).expect("a seed is short").to_le_bytes();
    let inverse = length.map(|byte| !byte);
    // Stored without compression, so that the lines are readable between binary data.
    let stored = [&[1], &length[..], &inverse, bytes].concat();
    let noise: Vec<u8> =
        bytes.iter().enumerate().map(|(at, byte)| byte.wrapping_mul(167) ^ (at as u8).wrapping_mul(91)).collect();
    let packed = |how: &str, parts: &[&[u8]]| Damaged::packed(how, parts.concat(), &text);
    vec![
        packed("gzip, stored", &[b"\x1f\x8b\x08\0\0\0\0\0\0\x03", &stored, b"\0\0\0\0\0\0\0\0"]),
        packed("gzip, named", &[b"\x1f\x8b\x08\x08\0\0\0\0\0\x03list.txt\0", &noise]),
        packed("gzip", &[b"\x1f\x8b\x08\0\0\0\0\0\0\x03", &noise]),
        packed("zlib", &[b"\x78\x9c", &noise]),
        packed("zip", &[b"PK\x03\x04\x14\0\0\0\x08\0", &noise]),
        packed("zip, stored", &[b"PK\x03\x04\n\0\0\0\0\0\n", bytes, b"\nPK\x05\x06\0\0"]),
        packed("xz", &[b"\xfd7zXZ\0\0\x04", &noise]),
        packed("bzip2", &[b"BZh91AY&SY", &noise]),
        packed("zstd", &[b"\x28\xb5\x2f\xfd\x24", &noise]),
        packed("lz4", &[b"\x04\x22\x4d\x18\x64", &noise]),
        packed("7z", &[b"7z\xbc\xaf\x27\x1c", &noise]),
        packed("compress", &[b"\x1f\x9d\x90", &noise]),
        packed("noise", &[&noise]),
        packed("tar", &[b"list.txt", &[0; 249], b"ustar\x0000", &[0; 247], bytes, &[0; 512]]),
        packed("a page before", &[b"<!DOCTYPE html>\n<html><body><pre>", bytes]),
        packed("a page around", &[b"<html>\n<pre>\n", bytes, b"</pre>\n</html>\n"]),
        packed("XML", &[b"<?xml version=\"1.0\"?><list>", bytes, b"</list>"]),
        Damaged::packed(
            "a page in its place",
            b"<html><head><title>503</title></head>\n<body>try again</body></html>\n".to_vec(),
            "1.2.3.4",
        ),
        Damaged::packed(
            "an error in its place",
            b"upstream connect error or disconnect/reset before headers\n".to_vec(),
            "1.2.3.4",
        ),
        Damaged::packed("nothing in its place", vec![], "1.2.3.4"),
        Damaged::packed("blanks in its place", b" \r\n\t\n".to_vec(), "1.2.3.4"),
        Damaged::packed("zeros in its place", vec![0; bytes.len()], "1.2.3.4"),
        Damaged::packed("PDF", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n".to_vec(), "1.2.3.4"),
        Damaged::packed("a capture", b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0".to_vec(), "1.2.3.4"),
    ]
}

/// Changes single lines: missing, swapped and additional columns.
fn lines_changed(text: &str) -> Vec<Damaged> {
    let lines: Vec<&str> = text.lines().collect();
    type Change = fn(&str) -> String;
    let changes: &[(&str, Change)] = &[
        ("its first column alone", |line| line.split(',').next().unwrap_or_default().to_owned()),
        ("without its last column", |line| line.rsplit_once(',').map_or("", |(head, _)| head).to_owned()),
        ("one column more", |line| format!("{line},x")),
        ("one address more", |line| format!("{line},9.9.9.9")),
        ("an address after a blank", |line| format!("{line} 9.9.9.9")),
        ("a prefix after a tab", |line| format!("{line}\t9.9.0.0/16")),
        ("an address in words", |line| format!("{line} seen with 9.9.9.9 and others")),
        ("an IPv6 address after a blank", |line| format!("{line} 2001:db8:99::1")),
        ("an address in quotes", |line| format!("{line} \"9.9.9.9\"")),
        ("an address in brackets", |line| format!("{line} [9.9.9.9]")),
        ("an address and its port", |line| format!("{line} 9.9.9.9:53")),
        ("an address after ;", |line| format!("{line};9.9.9.9")),
        ("an address after #", |line| format!("{line} #9.9.9.9")),
        ("columns the other way round", |line| line.rsplit(',').collect::<Vec<_>>().join(",")),
        ("a range without its end", |line| format!("{line}-")),
        ("a range to nowhere", |line| format!("{line} - 10.0.0.256")),
        ("a comment", |line| format!("#{line}")),
        ("a comment in C", |line| format!("//{line}")),
        ("a quotation", |line| format!("> {line}")),
        ("quoted", |line| format!("\"{line}\"")),
        ("half quoted", |line| format!("\"{line}")),
        ("negated", |line| format!("!{line}")),
        ("an item", |line| format!("- {line}")),
        ("numbered", |line| format!("1. {line}")),
        ("added", |line| format!("add other {line}")),
        ("of another set", |line| line.replace(" bad", " worse")),
        ("removed", |line| line.replace("add ", "del ")),
        ("a set's end", |line| format!("{line}\ncreate late hash:ip family inet")),
        ("its length apart", |line| line.replacen('/', " /", 1)),
        ("a mask", |line| line.replacen('/', "/255.255.255.", 1)),
        ("a mask apart", |line| format!("{line} 255.255.255.0")),
    ];
    let mut damages = Vec::new();
    for (how, change) in changes {
        for one in [0, lines.len() / 2, lines.len() - 1] {
            let line = |(at, line): (usize, &&str)| if at == one { change(line) + "\n" } else { format!("{line}\n") };
            let changed: String = lines.iter().enumerate().map(line).collect();
            damages.push(Damaged::text(format!("line {one} {how}"), changed));
        }
        let changed: String = lines.iter().map(|line| change(line) + "\n").collect();
        damages.push(Damaged::text(format!("every line {how}"), changed));
    }
    damages
}

/// The entries of the list in the formats of other programs.
fn other_formats(text: &str) -> Vec<Damaged> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with(['#', ';'])).collect();
    let quoted: Vec<String> = lines.iter().map(|line| format!("\"{}\"", line.replace('"', "'"))).collect();
    let twice =
        |between: &str| format!("{text}{between}{}", text.replace("198.51.100", "198.51.101").replace("db8", "db9"));
    vec![
        Damaged::text("a JSON array", format!("[{}]", quoted.join(", "))),
        Damaged::text("a JSON array on lines", format!("[\n  {}\n]\n", quoted.join(",\n  "))),
        Damaged::text("a JSON object", format!("{{\"list\": [{}]}}\n", quoted.join(","))),
        Damaged::text("quoted, on one line", quoted.join(",")),
        Damaged::text("YAML", lines.iter().map(|line| format!("- {line}\n")).collect()),
        Damaged::text("an nft set", format!("elements = {{ {} }}", lines.join(", "))),
        Damaged::text("a range of two sets", twice("create second hash:net family inet\n")),
        Damaged::text("twice", twice("")),
        Damaged::text("twice, with marks", twice("\u{feff}")),
        Damaged::text("on one line after a comment", format!("# all: {}", lines.join(" "))),
        Damaged::text("on one line with commas", lines.join(",")),
        Damaged::text("pairs on a line", lines.chunks(2).map(|pair| pair.join(",") + "\n").collect()),
        Damaged::text("pairs with blanks", lines.chunks(2).map(|pair| pair.join(" ") + "\n").collect()),
        Damaged::text("route commands", lines.iter().map(|line| format!("ip route add blackhole {line}\n")).collect()),
        Damaged::text("hosts", lines.iter().map(|line| format!("{line} localhost\n")).collect()),
    ]
}
