//! Words on a terminal: colour that is never the only carrier, line breaks, and text that came from a peer.

use anstyle::{AnsiColor, Style};

/// What a word means to the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    Doubtful,
    Heading,
    Quiet,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Self::Good => AnsiColor::Green.on_default().bold(),
            Self::Bad => AnsiColor::Red.on_default().bold(),
            Self::Doubtful => AnsiColor::Yellow.on_default().bold(),
            Self::Heading => Style::new().bold(),
            Self::Quiet => Style::new().dimmed(),
        }
    }
}

/// Colours words, or leaves them as they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    colour: bool,
}

impl Paint {
    pub(crate) fn new(colour: bool) -> Self {
        Self { colour }
    }

    pub(crate) fn text(self, tone: Tone, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let style = tone.style();
        format!("{style}{text}{style:#}")
    }
}

/// `text` without control characters: a host name or log line of the peer must not drive the reader's
/// terminal.
pub(crate) fn plain(text: &str) -> String {
    let visible = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if c.is_control() => '?',
        c => c,
    };
    text.chars().map(visible).collect()
}

/// Appends `text` to a line that already has `indent` characters, breaking at spaces so that no line is
/// longer than `width` where a space allows it. Further lines start with `indent` spaces. The last line is
/// ended.
pub(crate) fn push_wrapped(out: &mut String, text: &str, indent: usize, width: usize) {
    let mut column = indent;
    let mut line_is_empty = true;
    let text = plain(text);
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let length = word.chars().count();
        if !line_is_empty && column + 1 + length > width {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
            line_is_empty = true;
        }
        if !line_is_empty {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
        line_is_empty = false;
    }
    out.push('\n');
}
