//! What the system says about a process: what it uses, and proof that a pid still means the
//! recorded process. Linux has all of it in `/proc`; elsewhere `ps` prints what it can.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use super::identity::FolderId;

/// Returns the start time of a process, unique among those with its pid; `None` if it has exited.
pub(super) fn start_of(pid: i32) -> Option<String> {
    if cfg!(target_os = "linux") {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let ProcessStat { state, start, .. } = ProcessStat::parse(&stat)?;
        // A zombie has ended. Ticks count from the boot, so that is a part of the start.
        return (state != 'Z' && state != 'X').then(|| format!("{} {start}", boot.trim()));
    }

    let columns = String::from_utf8(ps(pid, "lstart=,ucomm=")?).ok()?;

    let text = columns.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

pub(super) fn has_argument(pid: i32, path: &Path) -> bool {
    let arguments = if cfg!(target_os = "linux") {
        fs::read(format!("/proc/{pid}/cmdline")).ok()
    } else {
        ps(pid, "command=")
    };
    // A part of one: Redis' URL contains the path.
    let path = path.as_os_str().as_encoded_bytes();
    arguments.is_some_and(|arguments| arguments.windows(path.len()).any(|part| part == path))
}

/// Returns whether the data folder of a process, a Postgres or a Redis, is `folder`. Both work in
/// it, so that its path may have changed since. Without `/proc`, their arguments must contain it.
pub(super) fn uses_folder(pid: i32, folder: &Path) -> bool {
    if !cfg!(target_os = "linux") {
        return has_argument(pid, folder);
    }

    let current = format!("/proc/{pid}/cwd");
    match FolderId::of(Path::new(&current)) {
        Ok(current) => FolderId::of(folder).is_ok_and(|folder| folder == current),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            has_argument(pid, folder) || is_same_for_owner(pid, &current, folder)
        }
        Err(_) => false,
    }
}

/// Compares two folders as the user of a process. Root in a container usually lacks the right
/// (`CAP_SYS_PTRACE`) to look at other users' processes; those users may.
fn is_same_for_owner(pid: i32, current: &str, folder: &Path) -> bool {
    let Ok(owner) = fs::metadata(format!("/proc/{pid}")) else { return false };
    let mut compare = Command::new("/bin/sh");
    compare.args(["-c", r#"test "$1" -ef "$2""#, "sh", current]).arg(folder);
    let compared = compare.uid(owner.uid()).gid(owner.gid()).status();
    compared.is_ok_and(|status| status.success())
}

fn ps(pid: i32, columns: &str) -> Option<Vec<u8>> {
    let mut ps = Command::new("ps");
    ps.args(["-ww", "-o", columns, "-p", &pid.to_string()]).env("LC_ALL", "C");
    Some(ps.output().ok()?.stdout)
}

/// A process as `/proc/<pid>/stat` describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessStat {
    pub pid: i32,
    pub name: String,
    pub state: char,
    pub parent: i32,
    pub group: i32,
    /// Processor time in ticks, in user and kernel mode.
    pub cpu_ticks: u64,
    /// That of its children that ended.
    pub child_cpu_ticks: u64,
    pub threads: u64,
    /// Time of its start, in ticks since the boot.
    pub start: u64,
    pub virtual_bytes: u64,
    pub resident_pages: u64,
}

impl ProcessStat {
    /// Reads those of all processes; none where there is no `/proc`.
    pub fn all() -> Vec<Self> {
        let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
        let stats = folders.filter_map(|folder| {
            folder.file_name().to_str()?.parse::<i32>().ok()?;
            // Processes may end before they are read.
            Self::parse(&fs::read_to_string(folder.path().join("stat")).ok()?)
        });
        stats.collect()
    }

    /// The second field, the name, is arbitrary.
    pub fn parse(stat: &str) -> Option<Self> {
        let (head, fields) = stat.rsplit_once(')')?;
        let (pid, name) = head.split_once(" (")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            pid: pid.parse().ok()?,
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            cpu_ticks: number(11)? + number(12)?,
            child_cpu_ticks: number(13)? + number(14)?,
            threads: number(17)?,
            start: number(19)?,
            virtual_bytes: number(20)?,
            resident_pages: number(21)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_parsed_after_any_process_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 4242 8192 2 1";
        let parsed = ProcessStat {
            pid: 7,
            name: "a) b (c".to_owned(),
            state: 'S',
            parent: 1,
            group: 7,
            cpu_ticks: 5 + 6,
            child_cpu_ticks: 7 + 8,
            threads: 9,
            start: 4242,
            virtual_bytes: 8192,
            resident_pages: 2,
        };
        assert_eq!(ProcessStat::parse(stat), Some(parsed));
        assert_eq!(ProcessStat::parse("7 (a) S 1 7"), None);
    }

    #[test]
    fn own_arguments_and_folder_are_found() {
        let pid = i32::try_from(std::process::id()).expect("pids are small");
        let program = std::env::args_os().next().expect("it has a name");
        assert!(has_argument(pid, Path::new(&program)));
        assert!(!has_argument(pid, Path::new("/tmp/holdfast-0123456789abcdef")));
        if cfg!(target_os = "linux") {
            assert!(uses_folder(pid, &std::env::current_dir().expect("a folder")));
        }
        assert!(!uses_folder(pid, Path::new("/proc")));
    }
}
