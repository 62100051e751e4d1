//! Screenshots of terminals: a tmux capture as cells, as text and as SVG.

use std::fs;
use std::path::PathBuf;

use unicode_width::UnicodeWidthChar;

/// A character with its style.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    character: char,
    style: Style,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Style {
    foreground: Option<u32>,
    background: Option<u32>,
    bold: bool,
    faint: bool,
    italic: bool,
    underlined: bool,
    reversed: bool,
}

/// The ANSI colours of a dark terminal.
const FOREGROUND: u32 = 0xd4d4d4;
const BACKGROUND: u32 = 0x1e1e1e;
const PALETTE: [u32; 16] = [
    0x1e1e1e, 0xe06c75, 0x98c379, 0xe5c07b, 0x61afef, 0xc678dd, 0x56b6c2, 0xd4d4d4, 0x7f848e,
    0xff8a93, 0xb5e890, 0xffd68a, 0x8ac6ff, 0xe4a1f7, 0x7fdbe8, 0xffffff,
];

/// Size of a cell in the screenshot, in pixels.
const WIDTH: f32 = 8.4;
const HEIGHT: f32 = 18.0;

/// Parses the lines of a capture with escape sequences.
pub(super) fn parse(captured: &str) -> Vec<Vec<Cell>> {
    // A style continues across line ends.
    let mut style = Style::default();
    captured.lines().map(|line| parse_line(line, &mut style)).collect()
}

fn parse_line(line: &str, style: &mut Style) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut rest = line.chars();
    while let Some(character) = rest.next() {
        match character {
            '\u{1b}' => match rest.next() {
                Some('[') => {
                    let parameters: String = rest.by_ref().take_while(|c| *c != 'm').collect();
                    style.change(&parameters);
                }
                // Skip a hyperlink or another OSC sequence up to its end.
                Some(']') => {
                    let mut before = ' ';
                    for next in rest.by_ref() {
                        if next == '\u{7}' || (before, next) == ('\u{1b}', '\\') {
                            break;
                        }
                        before = next;
                    }
                }
                _ => {}
            },
            // These switch the line-drawing character set on and off.
            '\u{e}' | '\u{f}' => {}
            character => cells.push(Cell { character, style: *style }),
        }
    }
    cells
}

impl Style {
    /// Applies Select Graphic Rendition, limited to the codes that editors use.
    fn change(&mut self, parameters: &str) {
        let mut codes = parameters.split(';').map(|code| {
            // `4:3` is a curly underline, which counts as an underline.
            let number = code.split(':').next().unwrap_or_default();
            (number.parse::<u32>().unwrap_or(0), code.ends_with(":0"))
        });
        while let Some((code, is_off)) = codes.next() {
            match code {
                0 => *self = Style::default(),
                1 => self.bold = true,
                2 => self.faint = true,
                3 => self.italic = true,
                4 => self.underlined = !is_off,
                7 => self.reversed = true,
                22 => (self.bold, self.faint) = (false, false),
                23 => self.italic = false,
                24 => self.underlined = false,
                27 => self.reversed = false,
                30..=37 => self.foreground = Some(palette(code - 30)),
                38 => self.foreground = color(&mut codes),
                39 => self.foreground = None,
                40..=47 => self.background = Some(palette(code - 40)),
                48 => self.background = color(&mut codes),
                49 => self.background = None,
                58 => drop(color(&mut codes)),
                90..=97 => self.foreground = Some(palette(code - 82)),
                100..=107 => self.background = Some(palette(code - 92)),
                _ => {}
            }
        }
    }

    /// Returns the foreground and background colours.
    fn colors(&self) -> (u32, u32) {
        let (mut ink, mut ground) =
            (self.foreground.unwrap_or(FOREGROUND), self.background.unwrap_or(BACKGROUND));
        if self.reversed {
            (ink, ground) = (ground, ink);
        }
        (ink, ground)
    }
}

fn palette(index: u32) -> u32 {
    match index {
        0..16 => PALETTE[index as usize],
        // A 6×6×6 colour cube, and a grey ramp.
        16..232 => {
            let level = |step: u32| if step == 0 { 0 } else { 55 + 40 * step };
            let cube = index - 16;
            level(cube / 36) << 16 | level(cube / 6 % 6) << 8 | level(cube % 6)
        }
        _ => 0x010101 * (8 + 10 * (index.min(255) - 232)),
    }
}

fn color(codes: &mut impl Iterator<Item = (u32, bool)>) -> Option<u32> {
    let mut next = || codes.next().map(|(code, _)| code);
    match next()? {
        5 => Some(palette(next()?)),
        2 => Some(next()? << 16 | next()? << 8 | next()?),
        _ => None,
    }
}

/// Returns the text of a line without trailing blanks.
pub(super) fn text(line: &[Cell]) -> String {
    let text: String = line.iter().map(|cell| cell.character).collect();
    text.trim_end().to_owned()
}

/// Saves a screen as text and as SVG.
pub(super) fn keep(name: &str, screen: &[Vec<Cell>]) {
    let folder = folder();
    fs::create_dir_all(&folder).expect("a folder");
    let lines: Vec<String> = screen.iter().map(|line| text(line)).collect();
    fs::write(folder.join(format!("{name}.txt")), lines.join("\n") + "\n").expect("written");
    fs::write(folder.join(format!("{name}.svg")), svg(screen)).expect("written");
}

/// Returns the folder of the screenshots.
pub(super) fn folder() -> PathBuf {
    match std::env::var_os("RIDGELINE_EDITOR_PICTURES") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("editors"),
    }
}

fn svg(screen: &[Vec<Cell>]) -> String {
    let widest = screen.iter().map(|line| columns(line)).max().unwrap_or_default();
    let (width, height) = (widest as f32 * WIDTH + 16.0, screen.len() as f32 * HEIGHT + 16.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"-8 -8 {width} {height}\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, \
         monospace\" font-size=\"14\">\n\
         <rect x=\"-8\" y=\"-8\" width=\"100%\" height=\"100%\" fill=\"#{BACKGROUND:06x}\"/>\n"
    );
    for (row, line) in screen.iter().enumerate() {
        let mut column = 0;
        for run in line.chunk_by(|a, b| a.style == b.style) {
            let wide = columns(run);
            ground(&mut svg, run, column, row, wide);
            // Word by word, because viewers treat consecutive blanks differently.
            for word in run.chunk_by(|a, b| (a.character == ' ') == (b.character == ' ')) {
                letters(&mut svg, word, column, row);
                column += columns(word);
            }
        }
    }
    svg + "</svg>\n"
}

fn columns(cells: &[Cell]) -> usize {
    cells.iter().map(|cell| cell.character.width().unwrap_or(0)).sum()
}

/// Draws backgrounds that differ from the terminal's default.
fn ground(svg: &mut String, run: &[Cell], column: usize, row: usize, wide: usize) {
    let Some((_, ground)) = run.first().map(|cell| cell.style.colors()) else { return };
    if ground != BACKGROUND {
        let (x, y) = (column as f32 * WIDTH, row as f32 * HEIGHT);
        let width = wide as f32 * WIDTH;
        let place = format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{HEIGHT}\"");
        *svg += &format!("<rect {place} fill=\"#{ground:06x}\"/>\n");
    }
}

fn letters(svg: &mut String, word: &[Cell], column: usize, row: usize) {
    let Some(style) = word.first().map(|cell| cell.style) else { return };
    let text: String = word.iter().map(|cell| cell.character).collect();
    if text.trim().is_empty() {
        return;
    }
    let (ink, _) = style.colors();
    let (x, y) = (column as f32 * WIDTH, row as f32 * HEIGHT + 14.0);
    let width = columns(word) as f32 * WIDTH;
    *svg += &format!("<text x=\"{x}\" y=\"{y}\" textLength=\"{width}\" fill=\"#{ink:06x}\"");
    for (is_so, attribute) in [
        (style.bold, " font-weight=\"bold\""),
        (style.faint, " fill-opacity=\"0.6\""),
        (style.italic, " font-style=\"italic\""),
        (style.underlined, " text-decoration=\"underline\""),
    ] {
        if is_so {
            *svg += attribute;
        }
    }
    *svg += &format!(">{}</text>\n", text.replace('&', "&amp;").replace('<', "&lt;"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_styles() {
        let line = parse("a\u{1b}[1;38;2;255;0;16mb\u{1b}[0;7;44mc\u{1b}[0m  ").remove(0);
        assert_eq!(text(&line), "abc");
        assert_eq!(
            line[1].style,
            Style { foreground: Some(0xff0010), bold: true, ..Style::default() }
        );
        assert_eq!(line[2].style.colors(), (palette(4), FOREGROUND));
        assert_eq!(line[3].style, Style::default());
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(columns(&parse("a訓🚀b")[0]), 6);
    }

    #[test]
    fn special_xml_characters_are_escaped() {
        assert!(svg(&parse("a<b&c")).contains(">a&lt;b&amp;c</text>"));
    }
}
