//! Artifacts: folders that appear whole or not at all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Name of the file that makes a folder an artifact.
pub const MANIFEST: &str = "manifest.json";

/// An input of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InputRef {
    /// Where it lay.
    pub path: PathBuf,
    /// Its key: that of its manifest, or the hash of a plain file.
    pub key: String,
}

/// One file of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileEntry {
    /// Size in bytes.
    pub bytes: u64,
    /// Hash of the content.
    pub blake3: String,
}

/// What a step made, of what and how. Written last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// What the folder holds, such as `trajectories` or `token-shards`.
    pub kind: String,
    /// Version of that format.
    pub version: u32,
    /// The step's key: hash of resolved config, input keys and the step's own version.
    pub key: String,
    /// The inputs by role.
    pub inputs: BTreeMap<String, InputRef>,
    /// The resolved config of the step.
    pub config: serde_json::Value,
    /// Counts worth knowing, such as `trajectories` or `tokens`.
    pub counts: BTreeMap<String, u64>,
    /// Revision of the program that made it; recorded, not part of the key.
    pub code: String,
    /// The files inside, relative to the folder.
    pub files: BTreeMap<String, FileEntry>,
}

impl Manifest {
    /// A manifest with nothing but its kind.
    pub fn new(kind: &str, version: u32) -> Self {
        Self {
            kind: kind.into(),
            version,
            key: String::new(),
            inputs: BTreeMap::new(),
            config: serde_json::Value::Null,
            counts: BTreeMap::new(),
            code: String::new(),
            files: BTreeMap::new(),
        }
    }
}

/// A folder being made. Dropped without [`ArtifactWriter::finish`], it leaves nothing behind.
pub struct ArtifactWriter {
    target: PathBuf,
    folder: tempfile::TempDir,
}

impl ArtifactWriter {
    /// Starts a temporary folder beside `target`.
    pub fn create(target: &Path) -> Result<Self> {
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        fs_err::create_dir_all(parent)?;
        let name = target.file_name().map_or("artifact".into(), |name| name.to_string_lossy());
        let folder = tempfile::Builder::new().prefix(&format!(".{name}.")).suffix(".partial").tempdir_in(parent)?;
        Ok(Self { target: target.into(), folder })
    }

    /// Where to write the files.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Seals the folder and puts it in place; a previous one goes afterwards.
    pub fn finish(self, manifest: Manifest) -> Result<Manifest> {
        let manifest = seal(self.folder.path(), manifest)?;
        let made = self.folder.keep();
        set_readable(&made)?;
        publish(&made, &self.target)?;
        Ok(manifest)
    }
}

/// Hashes the files of a folder, syncs them and writes the manifest last: from then on the folder is an artifact.
/// Stages that resume work in place and seal at the end; the others go through [`ArtifactWriter`].
pub fn seal(folder: &Path, mut manifest: Manifest) -> Result<Manifest> {
    manifest.files.clear();
    list_files(folder, folder, &mut manifest.files)?;
    for name in manifest.files.keys() {
        fs_err::File::open(folder.join(name))?.sync_all()?;
    }
    let path = folder.join(MANIFEST);
    let text = serde_json::to_string_pretty(&manifest).map_err(|error| Error::write(&path, error))?;
    let partial = folder.join(".manifest.partial");
    fs_err::write(&partial, text + "\n")?;
    fs_err::File::open(&partial)?.sync_all()?;
    fs_err::rename(&partial, &path)?;
    fs_err::File::open(folder)?.sync_all()?;
    Ok(manifest)
}

/// Temporary folders are private; an artifact is as readable as any folder of the user's.
fn set_readable(folder: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs_err::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn publish(made: &Path, target: &Path) -> Result<()> {
    let old = target.with_extension("replaced");
    if target.exists() {
        if old.exists() {
            fs_err::remove_dir_all(&old)?;
        }
        fs_err::rename(target, &old)?;
    }
    fs_err::rename(made, target)?;
    if let Some(parent) = target.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs_err::File::open(parent)?.sync_all()?;
    }
    if old.exists() {
        fs_err::remove_dir_all(&old)?;
    }
    Ok(())
}

fn list_files(root: &Path, folder: &Path, files: &mut BTreeMap<String, FileEntry>) -> Result<()> {
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        if path.is_dir() {
            list_files(root, &path, files)?;
        } else if name != MANIFEST && !name.starts_with('.') {
            let bytes = fs_err::metadata(&path)?.len();
            files.insert(name, FileEntry { bytes, blake3: hash_file(&path)? });
        }
    }
    Ok(())
}

/// A finished artifact.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// The folder.
    pub path: PathBuf,
    /// What it says of itself.
    pub manifest: Manifest,
}

impl Artifact {
    /// Opens a folder that must hold this kind.
    pub fn open(path: &Path, kind: &str) -> Result<Self> {
        let artifact = Self::open_any(path)?;
        let found = artifact.manifest.kind.clone();
        if found != kind {
            return Err(Error::Kind { path: path.into(), expected: kind.into(), found });
        }
        Ok(artifact)
    }

    /// Opens a folder of any kind.
    pub fn open_any(path: &Path) -> Result<Self> {
        let file = path.join(MANIFEST);
        if !file.exists() {
            return Err(Error::NoManifest { path: path.into() });
        }
        let text = fs_err::read_to_string(&file)?;
        let manifest =
            serde_json::from_str(&text).map_err(|error| Error::Json { path: file, detail: error.to_string() })?;
        Ok(Self { path: path.into(), manifest })
    }

    /// Compares sizes (always) and hashes (when asked) with the manifest.
    pub fn verify(&self, hashes: bool) -> Result<()> {
        for (name, entry) in &self.manifest.files {
            let path = self.path.join(name);
            let bytes = fs_err::metadata(&path)?.len();
            if bytes != entry.bytes {
                let detail = format!("{bytes} bytes, expected {}", entry.bytes);
                return Err(Error::Changed { path, detail });
            }
            if hashes && hash_file(&path)? != entry.blake3 {
                return Err(Error::Changed { path, detail: "another content hash".into() });
            }
        }
        Ok(())
    }
}

/// Content hash of a file.
pub fn hash_file(path: &Path) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    std::io::copy(&mut fs_err::File::open(path)?, &mut hasher)?;
    Ok(hasher.finalize().to_hex()[..32].to_string())
}

/// Hash of a JSON value with its keys sorted.
pub fn hash_json(value: &serde_json::Value) -> String {
    fn sorted(value: &serde_json::Value) -> serde_json::Value {
        match value {
            serde_json::Value::Object(map) => {
                let ordered: BTreeMap<_, _> = map.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
                serde_json::Value::Object(ordered.into_iter().collect())
            }
            serde_json::Value::Array(items) => items.iter().map(sorted).collect(),
            other => other.clone(),
        }
    }
    blake3::hash(sorted(value).to_string().as_bytes()).to_hex()[..32].to_string()
}
