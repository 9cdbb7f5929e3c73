//! The file: metadata by key, a table of tensors, numbers in blocks behind them.

use super::blocks::Kind;
use crate::Error;
use memmap2::Mmap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"GGUF";
const ALIGNMENT: &str = "general.alignment";
const DEFAULT_ALIGNMENT: u64 = 32;

/// A value of the metadata; integers of all widths are one, and so are floats.
#[derive(Clone, Debug, PartialEq)]
pub enum GgufValue {
    /// A whole number.
    Integer(i128),
    /// A float.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// Text.
    Text(String),
    /// Values of one kind.
    List(Vec<GgufValue>),
}

/// A mapped GGUF file whose metadata and table are read.
pub struct Gguf {
    path: PathBuf,
    bytes: Mmap,
    metadata: BTreeMap<String, GgufValue>,
    tensors: BTreeMap<String, Tensor>,
}

struct Tensor {
    /// As published: slowest first.
    shape: Vec<usize>,
    kind: Kind,
    bytes: Range<usize>,
}

impl Gguf {
    /// Maps a file and reads its metadata and its table of tensors.
    #[expect(unsafe_code, reason = "the memory map of this file")]
    pub fn open(path: &Path) -> Result<Gguf, Error> {
        let file = fs_err::File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Err(Error::Gguf { path: path.to_owned(), reason: "the file is empty".to_owned() });
        }
        // SAFETY: the map is read only; a file that another program cuts meanwhile ends this process, as for any
        // mapped reader.
        let bytes = unsafe { Mmap::map(file.file()) }?;
        let wrong = |reason| Error::Gguf { path: path.to_owned(), reason };
        let (metadata, tensors) = read(&bytes).map_err(wrong)?;
        Ok(Gguf { path: path.to_owned(), bytes, metadata, tensors })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A value of the metadata.
    pub fn value(&self, key: &str) -> Option<&GgufValue> {
        self.metadata.get(key)
    }

    /// A text of the metadata.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.value(key)? {
            GgufValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A whole number of the metadata.
    pub fn integer(&self, key: &str) -> Option<usize> {
        match self.value(key)? {
            GgufValue::Integer(value) => usize::try_from(*value).ok(),
            _ => None,
        }
    }

    /// A number of the metadata.
    pub fn number(&self, key: &str) -> Option<f64> {
        match self.value(key)? {
            GgufValue::Float(value) => Some(*value),
            GgufValue::Integer(value) => Some(*value as f64),
            _ => None,
        }
    }

    /// The texts of a list of the metadata; none where one of them is no text.
    pub fn texts(&self, key: &str) -> Option<Vec<&str>> {
        let GgufValue::List(values) = self.value(key)? else { return None };
        values.iter().map(|value| if let GgufValue::Text(text) = value { Some(text.as_str()) } else { None }).collect()
    }

    /// The whole numbers of a list of the metadata; none where one of them is no whole number.
    pub fn integers(&self, key: &str) -> Option<Vec<i64>> {
        let GgufValue::List(values) = self.value(key)? else { return None };
        let integer = |value: &GgufValue| if let GgufValue::Integer(i) = value { i64::try_from(*i).ok() } else { None };
        values.iter().map(integer).collect()
    }

    pub(super) fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub(super) fn shape(&self, tensor: &str) -> Option<&[usize]> {
        Some(&self.tensors.get(tensor)?.shape)
    }

    /// The tensor is there and has this shape.
    pub(super) fn check(&self, tensor: &str, expected: &[usize]) -> Result<(), Error> {
        let missing = || Error::MissingTensor { folder: self.path.clone(), tensor: tensor.to_owned() };
        let found = self.shape(tensor).ok_or_else(missing)?.to_vec();
        if found != expected {
            let (path, tensor, expected) = (self.path.clone(), tensor.to_owned(), expected.to_vec());
            return Err(Error::WrongShape { path, tensor, expected, found });
        }
        Ok(())
    }

    /// All numbers of a tensor.
    pub(super) fn numbers(&self, tensor: &str) -> Result<Vec<f32>, Error> {
        let missing = || Error::MissingTensor { folder: self.path.clone(), tensor: tensor.to_owned() };
        let tensor = self.tensors.get(tensor).ok_or_else(missing)?;
        Ok(tensor.kind.numbers(&self.bytes[tensor.bytes.clone()]))
    }
}

type Contents = (BTreeMap<String, GgufValue>, BTreeMap<String, Tensor>);

fn read(bytes: &[u8]) -> Result<Contents, String> {
    let mut cursor = Cursor { bytes, at: 0 };
    if cursor.take(4)? != MAGIC {
        return Err("it does not start with `GGUF`".to_owned());
    }
    let version = cursor.u32()?;
    if !(2..=3).contains(&version) {
        return Err(format!("version {version}, expected 2 or 3"));
    }
    let (num_tensors, num_values) = (cursor.u64()?, cursor.u64()?);
    let mut metadata = BTreeMap::new();
    for _ in 0..num_values {
        let key = cursor.text()?;
        let kind = cursor.u32()?;
        let value = cursor.value(kind).map_err(|reason| format!("key `{key}`: {reason}"))?;
        if metadata.insert(key.clone(), value).is_some() {
            return Err(format!("key `{key}` is there twice"));
        }
    }
    let mut table = BTreeMap::new();
    for _ in 0..num_tensors {
        let name = cursor.text()?;
        let entry = Entry::read(&mut cursor).map_err(|reason| format!("tensor `{name}`: {reason}"))?;
        if table.insert(name.clone(), entry).is_some() {
            return Err(format!("tensor `{name}` is there twice"));
        }
    }
    let alignment = match metadata.get(ALIGNMENT) {
        None => DEFAULT_ALIGNMENT,
        Some(GgufValue::Integer(value @ 1..=65_536)) => *value as u64,
        Some(other) => return Err(format!("key `{ALIGNMENT}` is {other:?}")),
    };
    let start = (cursor.at as u64).next_multiple_of(alignment);
    let place = |(name, entry): (String, Entry)| {
        let tensor = entry.place(start, bytes.len()).map_err(|reason| format!("tensor `{name}`: {reason}"))?;
        Ok((name, tensor))
    };
    let tensors: Result<_, String> = table.into_iter().map(place).collect();
    Ok((metadata, tensors?))
}

/// A row of the table of tensors.
struct Entry {
    shape: Vec<usize>,
    kind: u32,
    offset: u64,
}

impl Entry {
    fn read(cursor: &mut Cursor<'_>) -> Result<Entry, String> {
        let num_axes = cursor.u32()?;
        if !(1..=4).contains(&num_axes) {
            return Err(format!("{num_axes} axes, expected 1 to 4"));
        }
        let axes: Result<Vec<usize>, String> = (0..num_axes).map(|_| cursor.size()).collect();
        // Fastest first in the file.
        let shape = axes?.into_iter().rev().collect();
        Ok(Entry { shape, kind: cursor.u32()?, offset: cursor.u64()? })
    }

    fn place(self, start: u64, file_len: usize) -> Result<Tensor, String> {
        let kind = Kind::of(self.kind).ok_or_else(|| format!("kind {}, expected {}", self.kind, Kind::READ))?;
        let count = self.shape.iter().try_fold(1usize, |product, &axis| product.checked_mul(axis));
        let width = *self.shape.last().expect("there is at least one axis");
        let len = count.and_then(|count| kind.bytes(width, count));
        let len = len.ok_or_else(|| format!("shape {:?} is not made of whole blocks of {kind:?}", self.shape))?;
        let first = start.checked_add(self.offset).and_then(|first| usize::try_from(first).ok());
        let range = first.and_then(|first| Some(first..first.checked_add(len)?));
        match range {
            Some(bytes) if bytes.end <= file_len => Ok(Tensor { shape: self.shape, kind, bytes }),
            _ => Err(format!("{len} bytes at {} of its data, but the file has {file_len} bytes", self.offset)),
        }
    }
}

/// Reads forward; every length is checked against what is left.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let left = self.bytes.len() - self.at;
        if len > left {
            return Err(format!("cut at byte {}: {len} bytes expected, {left} are left", self.at));
        }
        self.at += len;
        Ok(&self.bytes[self.at - len..self.at])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(self.take(N)?.try_into().expect("as many bytes as were asked for"))
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn size(&mut self) -> Result<usize, String> {
        let value = self.u64()?;
        usize::try_from(value).map_err(|_| format!("{value} is no size"))
    }

    fn text(&mut self) -> Result<String, String> {
        let len = self.size()?;
        let (at, bytes) = (self.at, self.take(len)?);
        String::from_utf8(bytes.to_vec()).map_err(|_| format!("text at byte {at} is not UTF-8"))
    }

    fn value(&mut self, kind: u32) -> Result<GgufValue, String> {
        if kind != 9 {
            return self.scalar(kind);
        }
        let (kind, len) = (self.u32()?, self.size()?);
        // A list that claims more values than there are bytes left ends at the end of the file.
        let mut values = Vec::with_capacity(len.min(self.bytes.len() - self.at));
        for _ in 0..len {
            values.push(self.scalar(kind)?);
        }
        Ok(GgufValue::List(values))
    }

    fn scalar(&mut self, kind: u32) -> Result<GgufValue, String> {
        let integer = |value: i128| Ok(GgufValue::Integer(value));
        match kind {
            0 => integer(u8::from_le_bytes(self.array()?).into()),
            1 => integer(i8::from_le_bytes(self.array()?).into()),
            2 => integer(u16::from_le_bytes(self.array()?).into()),
            3 => integer(i16::from_le_bytes(self.array()?).into()),
            4 => integer(self.u32()?.into()),
            5 => integer(i32::from_le_bytes(self.array()?).into()),
            // Published constants are short decimals: 1e-5 is meant, not 0.0000099999997.
            6 => shortest(f32::from_le_bytes(self.array()?)).map(GgufValue::Float),
            7 => Ok(GgufValue::Bool(self.take(1)?[0] != 0)),
            8 => self.text().map(GgufValue::Text),
            10 => integer(self.u64()?.into()),
            11 => integer(i64::from_le_bytes(self.array()?).into()),
            12 => Ok(GgufValue::Float(f64::from_le_bytes(self.array()?))),
            other => Err(format!("values of kind {other} are not known here")),
        }
    }
}

/// The double nearest to the shortest decimal that reads as this float.
fn shortest(value: f32) -> Result<f64, String> {
    value.to_string().parse().map_err(|_| format!("{value} is no number"))
}
