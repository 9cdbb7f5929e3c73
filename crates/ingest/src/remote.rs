//! Inputs that are addresses: `s3://`, `gs://`, `az://`, `http(s)://`, read through one interface.
//!
//! An address names one object or, in the stores that can list, all objects below it. Over plain HTTP only single
//! objects can be named.

use std::io::Read;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use futures::{Stream, StreamExt, TryStreamExt};
use object_store::path::Path as Location;
use object_store::{ObjectStore, ObjectStoreExt, ObjectStoreScheme};
use tokio::runtime::Runtime;

use crate::error::{Error, Result};

/// How addresses are reached: credentials and stores. Nothing is read from the environment here.
#[derive(Default, Clone)]
pub struct Access {
    options: Vec<(String, String)>,
    stores: Vec<(String, Arc<dyn ObjectStore>)>,
    runtime: Arc<OnceLock<Runtime>>,
}

impl Access {
    /// With options of the stores, such as `aws_region` or `allow_http`; each store takes the ones it knows.
    pub fn with_options(options: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { options: options.into_iter().collect(), ..Self::default() }
    }

    /// Reads addresses that begin with `prefix` (scheme and host) from this store.
    pub fn with_store(mut self, prefix: &str, store: Arc<dyn ObjectStore>) -> Self {
        self.stores.push((prefix.trim_end_matches('/').into(), store));
        self
    }

    /// The objects an address stands for, in the order of their names.
    pub(crate) fn list(&self, address: &str) -> Result<Vec<RemoteFile>> {
        let failed = |detail: String| Error::Remote { address: address.into(), detail };
        let (store, location) = self.store(address).map_err(&failed)?;
        let runtime = self.runtime().map_err(|error| failed(error.to_string()))?;
        let found = runtime.block_on(async {
            match store.head(&location).await {
                Ok(object) => Ok(vec![object]),
                Err(object_store::Error::NotFound { .. }) => {
                    store.list(Some(&location)).try_collect::<Vec<_>>().await.map_err(|error| error.to_string())
                }
                Err(error) => Err(error.to_string()),
            }
        });
        let mut objects = found.map_err(&failed)?;
        if objects.is_empty() {
            return Err(failed("no object of this name and none below it".into()));
        }
        objects.sort_by(|one, other| one.location.cmp(&other.location));
        let name = |object: &Location| {
            let parts: Vec<String> = match object.prefix_match(&location) {
                Some(rest) => rest.map(|part| part.as_ref().to_string()).collect(),
                None => Vec::new(),
            };
            if parts.is_empty() { object.filename().unwrap_or("object").to_string() } else { parts.join("/") }
        };
        let file = |object: object_store::ObjectMeta| RemoteFile {
            access: self.clone(),
            store: store.clone(),
            name: name(&object.location),
            bytes: object.size,
            version: object.e_tag.unwrap_or_else(|| object.last_modified.to_rfc3339()),
            location: object.location,
        };
        Ok(objects.into_iter().map(file).collect())
    }

    fn store(&self, address: &str) -> std::result::Result<(Arc<dyn ObjectStore>, Location), String> {
        let url = url::Url::parse(address).map_err(|error| error.to_string())?;
        if url.query().is_some() {
            return Err("an address with a query (`?…`) cannot be read".into());
        }
        for (prefix, store) in &self.stores {
            if let Some(rest) = address.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/')) {
                let location = Location::from_url_path(rest).map_err(|error| error.to_string())?;
                return Ok((store.clone(), location));
            }
        }
        let (scheme, _) = ObjectStoreScheme::parse(&url).map_err(|error| error.to_string())?;
        let mut options = self.options.clone();
        if scheme == ObjectStoreScheme::Http && url.scheme() == "http" {
            options.push(("allow_http".into(), "true".into()));
        }
        let (store, location) = object_store::parse_url_opts(&url, options).map_err(|error| error.to_string())?;
        Ok((Arc::from(store), location))
    }

    fn runtime(&self) -> std::io::Result<&Runtime> {
        if self.runtime.get().is_none() {
            let made = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            // Another thread may have been first; its runtime is as good.
            let _ = self.runtime.set(made);
        }
        self.runtime.get().ok_or_else(|| std::io::Error::other("no runtime"))
    }
}

/// Whether an input is an address rather than a path.
pub fn is_address(input: &Path) -> bool {
    address(input).is_some()
}

/// A key of the objects an address stands for: it changes when one of them does.
pub fn address_key(input: &Path, access: &Access) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    for object in access.list(address(input).unwrap_or_default())? {
        hasher.update(format!("{} {} {}\n", object.name, object.bytes, object.version).as_bytes());
    }
    Ok(hasher.finalize().to_hex()[..32].to_string())
}

/// The address, if an input is one.
pub(crate) fn address(input: &Path) -> Option<&str> {
    let text = input.to_str()?;
    let (scheme, _) = text.split_once("://")?;
    scheme.chars().all(|letter| letter.is_ascii_alphanumeric()).then_some(text)
}

/// An object of a store.
#[derive(Clone)]
pub(crate) struct RemoteFile {
    access: Access,
    store: Arc<dyn ObjectStore>,
    location: Location,
    /// Its path below the address, or its own name.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// What changes when its content does: the store's tag, else its time.
    pub(crate) version: String,
}

impl std::fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.location.as_ref())
    }
}

impl RemoteFile {
    /// Its bytes, as they come.
    pub(crate) fn open(&self) -> std::io::Result<RemoteReader> {
        let access = self.access.clone();
        let got = access.runtime()?.block_on(self.store.get(&self.location)).map_err(std::io::Error::other)?;
        Ok(RemoteReader { access, stream: got.into_stream(), current: bytes::Bytes::new() })
    }
}

type Chunks = Pin<Box<dyn Stream<Item = object_store::Result<bytes::Bytes>> + Send>>;

/// Reads an object chunk by chunk.
pub(crate) struct RemoteReader {
    access: Access,
    stream: Chunks,
    current: bytes::Bytes,
}

impl Read for RemoteReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.current.is_empty() {
            match self.access.runtime()?.block_on(self.stream.next()) {
                None => return Ok(0),
                Some(chunk) => self.current = chunk.map_err(std::io::Error::other)?,
            }
        }
        let taken = self.current.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&self.current.split_to(taken));
        Ok(taken)
    }
}
