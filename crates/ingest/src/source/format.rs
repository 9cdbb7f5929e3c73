//! A format as data: its name, what it looks like, and the functions that detect and read it. For logs of agent
//! frameworks, whose readers need no more than a JSON object or a file.

use super::{Draft, FormatInfo, Origin, Source};
use crate::json::{Fields, Value};
use crate::piece::{FilePiece, FolderPiece, Piece, Shape, Sink};
use crate::refusal::{Counts, Refusal};
use crate::repair;

/// Flag of a turn whose observation was written by the harness around the environment: a verdict, an `OK.` to a
/// thought, a repeated answer. Such a turn is kept, so that counts add up, and is no turn to train on.
pub(crate) const HARNESS_TEXT: &str = "skip:harness_text";

/// An episode, or why there is none, with the place where it was told: rows and bytes from the piece's own.
pub(crate) struct Found {
    pub(crate) row: u64,
    pub(crate) offset: u64,
    pub(crate) draft: Result<Draft, Refusal>,
}

/// What a piece told, in order. One episode that cannot be used does not take the others with it.
pub(crate) type Drafts = Vec<Found>;

/// The one episode of a piece.
pub(crate) fn one(draft: Draft) -> Drafts {
    vec![Found { row: 0, offset: 0, draft: Ok(draft) }]
}

/// Episodes in a row, numbered from 0.
pub(crate) fn numbered(drafts: impl IntoIterator<Item = Result<Draft, Refusal>>) -> Drafts {
    (0..).zip(drafts).map(|(row, draft)| Found { row, offset: 0, draft }).collect()
}

/// Whether these are the fields of an episode, or of an object whose values are episodes.
pub(crate) fn holds(fields: &Fields<'_>, is_episode: fn(&Fields<'_>) -> bool) -> bool {
    let first = || match Value::of(fields.first_key_value()?.1).ok()? {
        Value::Object(episode) => Some(is_episode(&episode)),
        _ => None,
    };
    is_episode(fields) || first() == Some(true)
}

/// The episodes of such an object, in the order of the numbers they are named by.
pub(crate) fn episodes(
    fields: &Fields<'_>,
    is_episode: fn(&Fields<'_>) -> bool,
    episode: fn(&Fields<'_>, &mut Counts) -> Result<Draft, Refusal>,
    counts: &mut Counts,
) -> Result<Drafts, Refusal> {
    if is_episode(fields) {
        return Ok(one(episode(fields, counts)?));
    }
    let mut named: Vec<_> = fields.iter().collect();
    named.sort_by_key(|(name, _)| (name.parse::<u64>().unwrap_or(u64::MAX), *name));
    Ok(numbered(named.into_iter().map(|(_, raw)| match Value::of(raw)? {
        Value::Object(fields) => episode(&fields, counts),
        other => Err(Refusal::field_type("episode", "an object", other.kind())),
    })))
}

/// A format whose logs are JSON objects.
pub(crate) struct RowFormat {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) example: &'static str,
    pub(crate) detects: fn(&Fields<'_>) -> bool,
    pub(crate) read: fn(&Fields<'_>, &Origin<'_>, &mut Counts) -> Result<Drafts, Refusal>,
}

impl Source for RowFormat {
    fn name(&self) -> &'static str {
        self.name
    }

    fn info(&self) -> FormatInfo {
        FormatInfo { name: self.name.into(), description: self.description.into(), example: self.example.into() }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        matches!(piece.row().map(Value::parse), Some(Ok(Value::Object(fields))) if (self.detects)(&fields))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let fields = match Value::parse(piece.row().unwrap_or_default()).map_err(|error| Refusal::json(&error))? {
            Value::Object(fields) => fields,
            other => return Err(Refusal::field_type("row", "an object", other.kind())),
        };
        give((self.read)(&fields, origin, out.counts)?, self.name, origin, out)
    }
}

/// A format whose logs are files.
pub(crate) struct FileFormat {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) example: &'static str,
    pub(crate) detects: fn(&FilePiece<'_>) -> bool,
    pub(crate) read: fn(&FilePiece<'_>, &mut Counts) -> Result<Drafts, Refusal>,
}

impl Source for FileFormat {
    fn name(&self) -> &'static str {
        self.name
    }

    fn info(&self) -> FormatInfo {
        FormatInfo { name: self.name.into(), description: self.description.into(), example: self.example.into() }
    }

    fn shape(&self) -> Shape {
        Shape::File
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        piece.file().is_some_and(|file| (self.detects)(file))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(file) = piece.file() else { return Err(Refusal::new("no_file", "the format is read by the file")) };
        give((self.read)(file, out.counts)?, self.name, origin, out)
    }
}

/// Gives what was found to the sink. A piece whose one episode cannot be used is refused as a whole.
pub(crate) fn give(
    found: Drafts,
    format: &'static str,
    origin: &Origin<'_>,
    out: &mut Sink<'_>,
) -> Result<(), Refusal> {
    if found.is_empty() {
        return Err(Refusal::new("no_episodes", "nothing in it is an episode"));
    }
    for Found { row, offset, draft } in found {
        let (row, offset) = (origin.row + row, origin.offset + offset);
        let finished = draft.and_then(|draft| Draft { format, ..draft }.finish(&origin.at(row, offset)));
        match finished {
            Ok(trajectory) => out.push(trajectory),
            Err(refusal) => out.refuse(row, offset, refusal),
        }
    }
    Ok(())
}

/// The entries of a folder that are wanted, with their texts.
pub(crate) fn texts(
    folder: &FolderPiece<'_>,
    is_wanted: impl Fn(&str) -> bool,
    counts: &mut Counts,
) -> Result<Vec<(String, String)>, Refusal> {
    let entries = folder.entries.iter().filter(|entry| is_wanted(entry));
    entries.map(|entry| Ok((entry.clone(), repair::to_text(folder.read(entry)?, counts)))).collect()
}

/// Text without the spaces around it, if any is left.
pub(crate) fn spoken(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_string()).filter(|text| !text.is_empty())
}

/// Whether the file tools of SWE-agent and OpenHands cut this observation.
pub(crate) fn is_clipped(observation: &str) -> bool {
    observation.contains("<response clipped><NOTE>")
}

/// The repository that SWE-bench and its kin name in an instance: `owner__name-123` and
/// `owner__name.1a2b3c4d.pr_5` are of `owner/name`. Of longer names the last two parts count.
pub(crate) fn repository(instance: &str) -> Option<String> {
    let (rest, name) = instance.rsplit_once("__")?;
    let owner = rest.rsplit("__").next().unwrap_or(rest);
    let name = name.split('.').next().unwrap_or(name);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let name = match name.rsplit_once('-') {
        Some((bare, number)) if is_number(number) => bare,
        _ => name,
    };
    (!owner.is_empty() && !name.is_empty()).then(|| format!("{owner}/{name}"))
}

/// The last part of a path, with `/` or `\` between the parts.
pub(crate) fn folder_name(path: &str) -> Option<String> {
    let last = path.trim_end_matches(['/', '\\']).rsplit(['/', '\\']).next()?;
    Some(last).filter(|last| !last.is_empty() && *last != "~" && *last != ".").map(str::to_string)
}

/// The host of the first address in a text.
pub(crate) fn site(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("://")?;
    let host: String = rest.chars().take_while(|letter| letter.is_alphanumeric() || ".-".contains(*letter)).collect();
    Some(host.trim_end_matches('.').to_lowercase()).filter(|host| host.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_names_its_repository() {
        let check = |instance, expected: Option<&str>| assert_eq!(repository(instance).as_deref(), expected);
        check("marshmallow-code__marshmallow-1867", Some("marshmallow-code/marshmallow"));
        check("pandas-dev__pandas.95280573.pr_53652", Some("pandas-dev/pandas"));
        check("__home__someone__events__crypto__Katy", Some("crypto/Katy"));
        check("scikit-learn__scikit-learn-9", Some("scikit-learn/scikit-learn"));
        check("testbed", None);
        check("a__", None);
        check("__a-1", None);
    }

    #[test]
    fn a_path_and_an_address_name_their_folder_and_site() {
        assert_eq!(folder_name("/home/someone/work/name/").as_deref(), Some("name"));
        assert_eq!(folder_name("C:\\work\\name").as_deref(), Some("name"));
        assert_eq!(folder_name("/"), None);
        assert_eq!(site("Review https://Example.org/a/b, then stop.").as_deref(), Some("example.org"));
        assert_eq!(site("see http://localhost:80/"), None);
        assert_eq!(site("no address"), None);
    }
}
