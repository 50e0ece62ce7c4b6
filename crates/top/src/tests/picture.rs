//! The moving picture: what a viewer sees at each time is the screen of that time.

use super::scenes::{attacked, model};
use crate::picture::{Captions, draw};
use crate::recording::Recording;
use crate::{Error, Event, Picture, Setup, Snapshot, frame};
use roxmltree::{Document, Node};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;

const SIZE: (u16, u16) = (80, 24);
/// What is drawn as shapes.
const SHAPES: &str = "▁▂▃▄▅▆▇█─";

fn recording(values: impl IntoIterator<Item = Value>) -> Recording {
    let snapshot = |value| serde_json::from_value::<Snapshot>(value).expect("a snapshot");
    Recording { snapshots: values.into_iter().map(snapshot).collect(), is_cut: false }
}

fn setup() -> Setup {
    Setup { is_recording: true, has_colour: true, ..model().setup }
}

/// Two seconds of peace, then an attack.
fn scene() -> Recording {
    recording((9..15).map(attacked))
}

/// From when until when each class is visible, and whether it is without animation.
fn intervals(style: &str) -> HashMap<String, (f64, f64, bool)> {
    let mut intervals = HashMap::new();
    for line in style.lines().filter(|line| line.starts_with(".t")) {
        let class = line[1..].split('{').next().expect("a class").to_owned();
        let seconds: f64 =
            line.split([' ', ';']).find_map(|word| word.strip_suffix('s')?.parse().ok()).expect("a time");
        let (_, frames) = line.split_once("@keyframes").expect("frames");
        let (_, frames) = frames.split_once('{').expect("frames");
        let (mut start, mut end) = (None, seconds);
        for step in frames.trim_end_matches('}').split('}') {
            let (at, what) = step.split_once("%{visibility:").expect("a step");
            let at = at.parse::<f64>().expect("a percentage") / 100.0 * seconds;
            match what {
                "visible" => start = Some(at),
                _ if start.is_some() => end = at,
                _ => {}
            }
        }
        intervals.insert(class, (start.expect("it is visible"), end, line.contains("{visibility:visible;animation")));
    }
    intervals
}

/// The words of a picture where `is_visible` says of a class that it is, on the grid of the screen.
fn seen(svg: &str, top: i32, is_visible: impl Fn(&str) -> bool) -> String {
    let document = Document::parse(svg).expect("the picture is XML");
    let mut grid = vec![vec![' '; SIZE.0.into()]; SIZE.1.into()];
    let number =
        |node: Node<'_, '_>, name: &str| node.attribute(name).map_or(0, |value| value.parse().expect("a number"));
    for group in document.descendants().filter(|node| node.has_tag_name("g")) {
        if group.attribute("class").is_some_and(|class| !is_visible(class)) {
            continue;
        }
        let place = group.attribute("transform").expect("a place");
        let y: i32 = place.trim_end_matches(')').rsplit(' ').next().and_then(|y| y.parse().ok()).expect("a line");
        for text in group.children().filter(|node| node.has_tag_name("text") && y >= top) {
            let words: Vec<char> = text.text().unwrap_or_default().chars().collect();
            assert_eq!(number(text, "textLength"), words.len() as i32 * 8, "{words:?}");
            let (line, column) = (((y - top) / 16) as usize, (number(text, "x") / 8) as usize);
            words.into_iter().enumerate().for_each(|(at, c)| grid[line][column + at] = c);
        }
    }
    grid.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned() + "\n").collect()
}

/// The screens of a recording, without what is drawn as shapes.
fn screens(recording: &Recording) -> Vec<String> {
    let mut model = crate::Model::new(setup());
    let mut screens = Vec::new();
    for (second, snapshot) in (0..).zip(&recording.snapshots) {
        model.update(Event::Snapshot(Box::new(snapshot.clone())), Duration::from_secs(second));
        let screen = frame(&model, SIZE.0, SIZE.1).replace(|c| SHAPES.contains(c), " ");
        screens.push(screen.lines().map(|line| line.trim_end().to_owned() + "\n").collect());
    }
    screens
}

#[test]
fn a_picture_shows_each_screen_at_its_time() {
    let recording = scene();
    let svg = draw(&recording, &Captions::default(), setup(), SIZE);
    let style = svg.split("<style>").nth(1).and_then(|rest| rest.split("</style>").next()).expect("a style");
    let intervals = intervals(style);
    let expected = screens(&recording);
    assert!(expected[0].contains("no attack") && expected[5].contains("ATTACKS"), "{}", expected[5]);
    for (second, screen) in expected.iter().enumerate() {
        let time = second as f64 + 0.5;
        let shown = seen(&svg, 14, |class| (intervals[class].0..intervals[class].1).contains(&time));
        assert_eq!(&shown, screen, "second {second}");
    }
    // Without animations, the last screen.
    assert_eq!(&seen(&svg, 14, |class| intervals[class].2), expected.last().expect("a screen"));
    assert_eq!(draw(&recording, &Captions::default(), setup(), SIZE), svg);
}

#[test]
fn captions_are_shown_from_their_times_on() {
    let recording = scene();
    let first = recording.snapshots[0].time_s;
    let captions = Captions::parse(&format!("{} an <attack> & more\n{first} peace\n", first + 2.0)).expect("captions");
    let at = |seconds: f64| captions.at(first + seconds);
    assert_eq!([at(-0.1), at(0.0), at(1.9), at(2.0)], [None, Some("peace"), Some("peace"), Some("an <attack> & more")]);
    let svg = draw(&recording, &captions, setup(), SIZE);
    let document = Document::parse(&svg).expect("the picture is XML");
    let is_caption = |node: &Node<'_, '_>| node.attribute("class") == Some("caption");
    let texts: Vec<&str> = document.descendants().filter(is_caption).filter_map(|node| node.text()).collect();
    assert_eq!(texts, ["peace", "an <attack> & more"]);
    let screen = seen(&svg, 36, |_| true);
    assert!(screen.contains("weir"), "{screen}");
    assert_eq!([Captions::parse("1 a\nsoon b\n"), Captions::parse("nan c")], [Err(2), Err(1)]);
}

#[test]
fn what_packets_and_names_contain_stays_text() {
    let evil = "</text><script>alert(1)</script>\u{1b}&\u{fffe}";
    let mut value = attacked(13);
    for path in ["/attacks/attacks/2/victim", "/attacks/mode", "/status/posture", "/room/tables/0/table"] {
        *value.pointer_mut(path).expect(path) = json!(evil);
    }
    let captions = Captions::parse(&format!("0 {evil}")).expect("captions");
    let svg = draw(&recording([attacked(12), value]), &captions, setup(), SIZE);
    let document = Document::parse(&svg).expect("the picture is XML");
    let names = ["svg", "title", "style", "rect", "g", "text", "path"];
    let is_foreign = |node: &Node<'_, '_>| node.is_element() && !names.contains(&node.tag_name().name());
    assert!(!document.descendants().any(|node| is_foreign(&node)));
    // Nothing is loaded from elsewhere.
    assert!(!svg.replace("http://www.w3.org/2000/svg", "").contains("http") && !svg.contains("url("), "{svg}");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, captions) = (folder.path().join("a.svg"), folder.path().join("captions"));
    std::fs::write(&captions, "1 one\ntwo\n").expect("it is written");
    let mut picture = Picture { file: file.clone(), captions: Some(captions.clone()), size: SIZE };
    let refused = picture.save(&scene(), setup());
    assert!(matches!(refused, Err(Error::NotACaption { path, line: 2 }) if path == captions));
    assert!(!file.exists());
    picture.captions = None;
    picture.save(&scene(), setup()).expect("it is written");
    assert!(std::fs::read_to_string(&file).expect("a text").starts_with("<svg "));
    picture.file = folder.path().join("missing/a.svg");
    assert!(matches!(picture.save(&scene(), setup()), Err(Error::File { .. })));
}
