//! The files of a data set, read in order.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use worldloom_schema::{TableReader, Trajectory};

use super::filter::Filter;
use crate::error::{Error, Result};

/// Trajectory files, in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSet {
    files: Vec<PathBuf>,
    total: u64,
}

/// Where a trajectory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which file of the data set, from 0.
    pub file: usize,
    /// Which row of the file, from 0.
    pub row: usize,
}

impl DataSet {
    /// A file; or a folder's trajectory files; or, where it has none itself, those of the folders below it. Parquet
    /// files of other tables are passed over.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            let total = TableReader::<Trajectory>::open(path)?.num_rows();
            return Ok(Self { files: vec![path.into()], total });
        }
        let mut set = Self { files: Vec::new(), total: 0 };
        let mut folders = vec![path.to_path_buf()];
        while set.files.is_empty() && !folders.is_empty() {
            folders = set.add_files(&folders)?;
        }
        if set.files.is_empty() {
            return Err(Error::NoTrajectories { path: path.into() });
        }
        Ok(set)
    }

    /// Adds the files that lie in these folders; gives the folders below them.
    fn add_files(&mut self, folders: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let mut below = Vec::new();
        for folder in folders {
            let entries: std::io::Result<Vec<_>> = fs_err::read_dir(folder)?.collect();
            let mut paths: Vec<PathBuf> = entries?.into_iter().map(|entry| entry.path()).collect();
            paths.sort();
            for path in paths {
                if path.is_dir() {
                    below.push(path);
                } else if path.extension().is_some_and(|ending| ending == "parquet") {
                    self.add_file(path)?;
                }
            }
        }
        Ok(below)
    }

    fn add_file(&mut self, path: PathBuf) -> Result<()> {
        match TableReader::<Trajectory>::open(&path) {
            Ok(reader) => {
                self.total += reader.num_rows();
                self.files.push(path);
                Ok(())
            }
            Err(worldloom_schema::Error::Kind { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The files.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Number of trajectories in all files.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Gives each trajectory that the filter lets through, in order, until told to break; says how many were read.
    pub fn visit(&self, filter: &Filter, mut each: impl FnMut(Place, Trajectory) -> ControlFlow<()>) -> Result<u64> {
        let mut read = 0;
        for (file, path) in self.files.iter().enumerate() {
            for (row, trajectory) in TableReader::<Trajectory>::open(path)?.enumerate() {
                let trajectory = trajectory?;
                read += 1;
                if filter.lets_through(&trajectory) && each(Place { file, row }, trajectory).is_break() {
                    return Ok(read);
                }
            }
        }
        Ok(read)
    }

    /// One trajectory.
    pub fn read(&self, place: Place) -> Result<Trajectory> {
        let path = &self.files[place.file];
        let row = TableReader::<Trajectory>::open_part(path, place.row, Some(1))?.next();
        Ok(row.ok_or_else(|| Error::NoRow { path: path.clone(), row: place.row })??)
    }
}
