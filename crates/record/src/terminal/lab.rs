//! The lab: a private, empty directory with a short name, `/tmp/lab-<nn>/<user>`.
//!
//! The number is locked while it is in use, so two recordings at once take different labs; a lab that a killed
//! recording left behind is unlocked, and the next one to want its number clears it.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::Error;

const NUM_LABS: u64 = 100;
/// The account used when `/etc/passwd` does not name `nobody`.
const NOBODY: Owner = Owner { uid: 65534, gid: 65534 };

/// The account that a shell runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Owner {
    /// `nobody` when we are root, so that permission errors are real; else `None`, to stay who we are.
    pub(crate) fn unprivileged() -> Option<Owner> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let accounts = fs_err::read_to_string("/etc/passwd").unwrap_or_default();
        let line = accounts.lines().find_map(|line| line.strip_prefix("nobody:"));
        let mut numbers = line.into_iter().flat_map(|line| line.split(':').skip(1)).map(|field| field.parse().ok());
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(uid), Some(gid)) => Some(Owner { uid, gid }),
            _ => Some(NOBODY),
        }
    }
}

/// A locked lab directory; cleared and removed when dropped.
#[derive(Debug)]
pub(crate) struct Lab {
    slot: PathBuf,
    owner: Option<Owner>,
    _lock: fs_err::File,
}

impl Lab {
    /// Takes lab `preferred` (modulo the number of labs) below `root`, or the next free one.
    pub(crate) fn claim(root: &Path, preferred: u64) -> Result<Lab, Error> {
        let root = fs_err::canonicalize(root)?;
        for offset in 0..NUM_LABS {
            let slot = root.join(format!("lab-{:02}", (preferred % NUM_LABS + offset) % NUM_LABS));
            if let Some(lock) = lock_folder(&slot)? {
                clear(&slot)?;
                return Ok(Lab { slot, owner: Owner::unprivileged(), _lock: lock });
            }
        }
        Err(Error::NoLab { root: root.display().to_string() })
    }

    /// The folder that holds the home; the shell's account cannot write to it.
    pub(crate) fn slot(&self) -> &Path {
        &self.slot
    }

    pub(crate) fn owner(&self) -> Option<Owner> {
        self.owner
    }

    /// Removes everything in the lab and makes an empty home called `user`.
    pub(crate) fn fresh_home(&self, user: &str) -> Result<PathBuf, Error> {
        clear(&self.slot)?;
        let home = self.slot.join(user);
        fs_err::create_dir(&home)?;
        fs_err::set_permissions(&home, PermissionsExt::from_mode(0o755))?;
        if let Some(owner) = self.owner {
            chown(&home, Some(owner.uid), Some(owner.gid))?;
        }
        Ok(home)
    }

    /// Removes everything in the home called `user`, which stays the same folder.
    pub(crate) fn empty_home(&self, user: &str) -> Result<(), Error> {
        let home = self.slot.join(user);
        fs_err::set_permissions(&home, PermissionsExt::from_mode(0o755))?;
        clear(&home)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = clear(&self.slot);
        let _ = fs_err::remove_dir(&self.slot);
    }
}

/// Makes `slot` where it does not exist and locks it; `None` if somebody else has it.
fn lock_folder(slot: &Path) -> Result<Option<fs_err::File>, Error> {
    match fs_err::create_dir(slot) {
        Ok(()) => fs_err::set_permissions(slot, PermissionsExt::from_mode(0o755))?,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.into()),
    }
    let Ok(found) = fs_err::symlink_metadata(slot) else { return Ok(None) };
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return Ok(None);
    }
    let Ok(lock) = fs_err::File::open(slot) else { return Ok(None) };
    if flock(lock.file(), FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    // The last holder may have removed the folder between our look and our lock.
    let locked = lock.metadata()?;
    let current = fs_err::symlink_metadata(slot);
    let same = current.is_ok_and(|current| (current.dev(), current.ino()) == (locked.dev(), locked.ino()));
    Ok(same.then_some(lock))
}

/// Removes what `folder` holds, also below folders whose mode forbids it.
fn clear(folder: &Path) -> Result<(), Error> {
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs_err::set_permissions(entry.path(), PermissionsExt::from_mode(0o700))?;
            clear(&entry.path())?;
            fs_err::remove_dir(entry.path())?;
        } else {
            fs_err::remove_file(entry.path())?;
        }
    }
    Ok(())
}
