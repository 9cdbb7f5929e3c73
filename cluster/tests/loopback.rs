//! A scheduler and two workers on loopback find what one process finds, also when one of them is killed.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "../../crates/curate/tests/curate/common.rs"]
#[expect(dead_code, reason = "shared with the tests of curate")]
mod common;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::trajectory;
use tempfile::TempDir;
use worldloom_cluster::Ballista;
use worldloom_curate::{
    CurateConfig, Decontaminate, Mixture, MixtureKey, NearDuplicates, Resources, SecretKind, Secrets, run,
};
use worldloom_schema::{System, Trajectory, Turn, trajectory_id};

const PROGRAM: &str = env!("CARGO_BIN_EXE_worldloom-cluster");
/// What may pass until a part of the cluster is there.
const PATIENCE: Duration = Duration::from_secs(120);

/// A scheduler and two workers, as processes.
struct Loopback {
    ballista: Ballista,
    workers: Vec<Worker>,
    scheduler: Child,
}

struct Worker {
    process: Child,
    /// Where it keeps rows between tasks.
    folder: TempDir,
}

impl Loopback {
    fn start() -> Self {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let scheduler =
            Command::new(PROGRAM).args(["scheduler", "--listen", &address, "--worker-timeout", "6"]).spawn().unwrap();
        let started = Instant::now();
        while TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_err() {
            assert!(started.elapsed() < PATIENCE, "the scheduler does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        let url = format!("ballista://{address}");
        let worker = |_| {
            let folder = TempDir::new().unwrap();
            let process = Command::new(PROGRAM)
                .args(["worker", "--cluster", &url, "--threads", "2", "--heartbeat", "1", "--folder"])
                .arg(folder.path())
                .spawn()
                .unwrap();
            Worker { process, folder }
        };
        Self { ballista: Ballista::parse(&url).unwrap(), workers: (0..2).map(worker).collect(), scheduler }
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        let workers = self.workers.iter_mut().map(|worker| &mut worker.process);
        for process in workers.chain([&mut self.scheduler]) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Every rule on.
fn config() -> CurateConfig {
    CurateConfig {
        near_duplicates: Some(NearDuplicates { threshold: 0.6, shingle_words: 2, places: 64 }),
        decontaminate: Some(Decontaminate {
            against: vec![],
            own_evaluation: true,
            run_words: 8,
            longest_run: 12,
            largest_share: 1.0,
        }),
        secrets: Some(Secrets { kinds: SecretKind::ALL.into(), private_hosts: vec![], allow: vec![] }),
        mixture: Some(Mixture { by: MixtureKey::Source, alpha: 0.5, weights: BTreeMap::new() }),
        ..common::config()
    }
}

/// A turn whose class the plans find.
fn turn(action: &str, observation: &str) -> Turn {
    Turn { flags: Vec::new(), ..common::turn(action, observation) }
}

/// Copies, near duplicates and turns said twice, so that every plan has something to do.
fn trajectories() -> Vec<Trajectory> {
    let of = |at: u64| {
        let text = (0..40).map(|word| format!("z{}", (at / 3) * 100 + word)).collect::<Vec<_>>().join(" ");
        let turns = vec![
            turn(&format!("ls fig{}", at % 11), &format!("plum{}", at % 7)),
            turn(&format!("read {at}"), &format!("{text} {}", if at.is_multiple_of(5) { 0 } else { at })),
            turn(&format!("mail u{at}@plum.io"), "sent to 10.0.0.3"),
        ];
        let state = format!("state {}", at - at % 2 * u64::from(at % 9 == 1));
        let trajectory = trajectory(&format!("group-{:02}", at % 15), &state, turns);
        let system = System { task_description: "T".into(), ..trajectory.system };
        Trajectory {
            trajectory_id: trajectory_id(&system, &trajectory.turns),
            source: if at.is_multiple_of(5) { "rare".into() } else { "common".into() },
            source_row: at,
            system,
            ..trajectory
        }
    };
    let mut all: Vec<Trajectory> = (0..900).map(of).collect();
    all.extend((0..40).map(|at| Trajectory { source_row: 900 + at, ..of(at * 3) }));
    all
}

fn write_inputs(folder: &Path) -> Vec<PathBuf> {
    let all = trajectories();
    let parts = all.chunks(all.len() / 3 + 1).enumerate();
    let write = |(at, rows): (usize, &[Trajectory])| common::write(folder, &format!("{at}.parquet"), rows);
    parts.map(write).collect()
}

/// Every file of a curation: ids, pools, flags and counts to the byte.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let paths = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs_err::read(path).unwrap())).collect()
}

fn curate(
    inputs: &[PathBuf],
    resources: Resources<'_>,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> BTreeMap<String, Vec<u8>> {
    let out = TempDir::new().unwrap();
    let report = run(&config(), inputs, &[], out.path(), resources, progress).unwrap();
    for rule in ["exact_duplicate", "near_duplicate", "mixture"] {
        let dropped = report.dropped_trajectories.get(rule).copied().unwrap_or(0);
        assert!(dropped > 0, "{rule} is tested: {:?}", report.dropped_trajectories);
    }
    files(out.path())
}

#[test]
fn a_cluster_finds_what_one_process_finds_also_when_a_worker_is_killed() {
    let folder = TempDir::new().unwrap();
    let inputs = write_inputs(folder.path());
    let expected = curate(&inputs, Resources::default(), &|_, _| {});
    assert_eq!(expected.len(), 6, "four pools, rejects and the report");

    let mut cluster = Loopback::start();
    let ballista = cluster.ballista.clone();
    let resources = Resources { cluster: Some(&ballista), ..Resources::default() };
    assert!(curate(&inputs, resources, &|_, _| {}) == expected, "both workers");
    assert!(cluster.workers.iter().all(|worker| count_files(worker.folder.path()) > 0), "both workers had tasks");

    // The second run is under way, and the worker has rows of it, when it is killed.
    let is_started = AtomicBool::new(false);
    let mut doomed = cluster.workers.remove(0);
    let rows_before = count_files(doomed.folder.path());
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            let started = Instant::now();
            while !is_started.load(Ordering::Relaxed) || count_files(doomed.folder.path()) <= rows_before {
                assert!(started.elapsed() < PATIENCE, "the worker gets no task");
                std::thread::sleep(Duration::from_millis(5));
            }
            doomed.process.kill().unwrap();
            doomed.process.wait().unwrap();
        });
        let found = curate(&inputs, resources, &|_, _| is_started.store(true, Ordering::Relaxed));
        killer.join().unwrap();
        assert!(found == expected, "one worker was killed");
    });
}

fn count_files(folder: &Path) -> usize {
    let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { count_files(&entry.path()) } else { 1 }).sum()
}
