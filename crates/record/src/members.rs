//! Processes by what they belong to: a name, a service, a container, a control group.

use anyhow::{Result, bail, ensure};
use nopal_process::processes;
use nopal_symbols::nearest;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The longest command name.
const LONGEST_NAME: usize = 15;

/// The shortest beginning of a container's number that is taken for one.
const SHORTEST_NUMBER: usize = 4;

/// The digits of a container's number that are shown.
const SHOWN_NUMBER: usize = 12;

/// Where docker keeps its containers.
const OF_DOCKER: &str = "/var/lib/docker/containers";

/// Control groups are not looked for deeper than this.
const DEEPEST: usize = 24;

/// A property that processes have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Membership {
    /// The name of the command, or of the file that it runs.
    Name(String),
    /// The directory of a control group: it and those below it.
    Group(PathBuf),
}

impl Membership {
    /// An error if no process has the name.
    pub fn named(name: &str) -> Result<Membership> {
        let named = Membership::Name(name.to_owned());
        if named.members().is_empty() {
            let names: Vec<String> = strangers(processes()).filter_map(name_of).collect();
            let names = names.iter().map(String::as_str);
            bail!("no process is named {name:?}{}", or_nearest(names, name));
        }
        Ok(named)
    }

    /// The control group of a unit of systemd; `.service` may be left out.
    pub fn unit(unit: &str) -> Result<Membership> {
        unit_below(&roots(), unit)
    }

    /// The control group of a container, by the number that docker, podman or containerd gave it, or a beginning of it,
    /// or by the name of a container of docker, podman or LXC.
    pub fn container(container: &str) -> Result<Membership> {
        let named = named_by_conmon().chain(named_by_docker(Path::new(OF_DOCKER)));
        container_below(&roots(), container, &named.collect::<Vec<_>>())
    }

    /// A control group by its directory, or by its path as `/proc/PID/cgroup` has it.
    pub fn group(path: &Path) -> Result<Membership> {
        group_below(&roots(), path)
    }

    /// The processes, without this one, those that it started, and those that it was started by.
    pub fn members(&self) -> Vec<i32> {
        self.members_among(&processes().collect::<Vec<_>>())
    }

    /// As `members`, but that names are read of these processes alone.
    pub(crate) fn members_among(&self, processes: &[i32]) -> Vec<i32> {
        let mut members: Vec<i32> = match self {
            // The name first: it takes less time than all else.
            Membership::Name(name) => {
                let processes = processes.iter().copied();
                strangers(processes.filter(|process| is_named(*process, name))).collect()
            }
            Membership::Group(group) => {
                let mut members = Vec::new();
                gather(group, 0, &mut members);
                strangers(members.into_iter()).collect()
            }
        };
        members.sort_unstable();
        members.dedup();
        members
    }
}

fn unit_below(roots: &[PathBuf], unit: &str) -> Result<Membership> {
    let units = groups(roots, |group| {
        let name = group.file_name()?.to_str()?;
        let (_, kind) = name.rsplit_once('.')?;
        let is_unit = ["service", "scope", "slice", "socket", "mount", "swap"].contains(&kind);
        is_unit.then(|| name.to_owned())
    });
    let full = match unit.contains('.') {
        true => unit.to_owned(),
        false => format!("{unit}.service"),
    };
    if let Some((_, group)) = units.iter().find(|(name, _)| *name == full) {
        return Ok(Membership::Group(group.clone()));
    }
    ensure!(
        !units.is_empty(),
        "there is no unit {unit:?}: systemd does not run here, or its control groups are not shown"
    );
    // The suffix would make all services alike.
    let short = |name| str::strip_suffix(name, ".service").unwrap_or(name);
    let names = units.iter().map(|(name, _)| short(name));
    bail!(
        "there is no unit {unit:?} with processes{}",
        or_nearest(names, short(unit))
    )
}

/// A container's name and number.
type Named = (String, String);

/// Those of podman and CRI-O: conmon, which watches each container, is told both.
fn named_by_conmon() -> impl Iterator<Item = Named> {
    let watchers = nopal_process::processes()
        .filter(|process| name_of(*process).is_some_and(|name| name == "conmon"));
    watchers.filter_map(|process| {
        let words = nopal_process::arguments(process).ok()?;
        let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
        let after = |option: &str| {
            let mut pairs = words.windows(2);
            pairs
                .find(|pair| pair[0] == option)
                .map(|pair| pair[1].to_owned())
        };
        Some((after("-n")?, after("-c")?))
    })
}

/// Those of docker, whose files root alone may read.
fn named_by_docker(containers: &Path) -> impl Iterator<Item = Named> {
    below(containers).filter_map(|directory| {
        let text = fs::read_to_string(directory.join("config.v2.json")).ok()?;
        // Other names there, as of volumes, have no slash.
        let (_, name) = text.split_once(r#""Name":"/"#)?;
        let name = name.split('"').next()?.to_owned();
        Some((name, directory.file_name()?.to_str()?.to_owned()))
    })
}

fn container_below(roots: &[PathBuf], container: &str, named: &[Named]) -> Result<Membership> {
    let wanted = container;
    let of_name = named.iter().find(|(name, _)| name == wanted);
    let container = of_name.map_or(wanted, |(_, number)| number);
    let containers = groups(roots, |group| {
        number_of_container(group.file_name()?.to_str()?).map(str::to_owned)
    });
    let begins = |name: &str| {
        container.len() >= SHORTEST_NUMBER && is_number(name) && name.starts_with(container)
    };
    let found: Vec<&(String, PathBuf)> = containers
        .iter()
        .filter(|(name, _)| name == container || begins(name))
        .collect();
    match found.as_slice() {
        [(first, group), others @ ..] => {
            ensure!(
                others.iter().all(|(name, _)| name == first),
                "several containers begin with {wanted:?}"
            );
            Ok(Membership::Group(group.clone()))
        }
        [] if of_name.is_some() => {
            bail!("the container {wanted:?} has no control group of its own")
        }
        [] => {
            let is_there = |number: &String| containers.iter().any(|(name, _)| name == number);
            let named = named.iter().filter(|(_, number)| is_there(number));
            let names = containers.iter().map(|(name, _)| name.as_str());
            let names = names.chain(named.map(|(name, _)| name.as_str()));
            let nearest = match containers.len() {
                0 => {
                    "; no control group here is one of docker, podman, containerd or LXC".to_owned()
                }
                _ => or_nearest_number(names, container),
            };
            bail!("there is no container {wanted:?}{nearest}")
        }
    }
}

fn group_below(roots: &[PathBuf], path: &Path) -> Result<Membership> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    let candidates = [path.to_owned()];
    let below = roots.iter().map(|root| root.join(relative));
    let is_group = |group: &PathBuf| group.join("cgroup.procs").exists();
    if let Some(group) = candidates.into_iter().chain(below).find(is_group) {
        return Ok(Membership::Group(group));
    }
    let known = groups(roots, |group| {
        let root = roots.iter().find(|root| group.starts_with(root))?;
        let below = group.strip_prefix(root).ok()?;
        Some(format!("/{}", below.display()))
    });
    let names = known.iter().map(|(name, _)| name.as_str());
    let wanted = format!("/{}", relative.display());
    bail!(
        "there is no control group {}{}",
        path.display(),
        or_nearest(names, &wanted)
    )
}

/// The same of containers, whose numbers are compared by their beginnings, and shown in twelve digits.
fn or_nearest_number<'a>(names: impl Iterator<Item = &'a str>, wanted: &str) -> String {
    let names: Vec<&str> = names.collect();
    let shown = |name: &'a str| match is_number(name) {
        true => &name[..name.len().min(SHOWN_NUMBER)],
        false => name,
    };
    let begins = names.iter().map(|name| match is_number(name) {
        true => &name[..name.len().min(wanted.len().max(1))],
        false => name,
    });
    let near = nearest(begins, wanted);
    let near = names
        .iter()
        .filter(|name| near.iter().any(|begin| name.starts_with(begin)));
    let mut near: Vec<&str> = near.map(|name| shown(name)).collect();
    near.sort_unstable();
    near.dedup();
    near.truncate(3);
    nopal_symbols::or_nearest(&near)
}

fn or_nearest<'a>(names: impl Iterator<Item = &'a str>, wanted: &str) -> String {
    nopal_symbols::or_nearest(&nearest(names, wanted))
}

/// Those that have not ended, but for this one, its ancestors, and its children.
fn strangers(processes: impl Iterator<Item = i32>) -> impl Iterator<Item = i32> {
    let own = std::process::id() as i32;
    let mut ancestors = vec![own];
    while let Some(parent) = ancestors
        .last()
        .and_then(|process| nopal_process::parent(*process).ok())
        && parent > 0
        && !ancestors.contains(&parent)
    {
        ancestors.push(parent);
    }
    processes.filter(move |process| {
        !ancestors.contains(process)
            && nopal_process::alive(*process)
            && nopal_process::parent(*process).is_ok_and(|parent| parent != own)
    })
}

fn name_of(process: i32) -> Option<String> {
    nopal_process::name(process).ok()
}

fn is_named(process: i32, name: &str) -> bool {
    let file = || {
        let path = nopal_process::executable(process).ok()?;
        let file = path.file_name()?.to_str()?.to_owned();
        Some(
            file.strip_suffix(" (deleted)")
                .map_or(file.clone(), str::to_owned),
        )
    };
    let is_short = |command: &str| {
        command == name || {
            command.len() == LONGEST_NAME && name.starts_with(command) && file().is_none()
        }
    };
    name_of(process).is_some_and(|command| is_short(&command)) || file().as_deref() == Some(name)
}

/// Where the control groups are: all in one tree, or, as of old, one tree a controller.
pub fn roots() -> Vec<PathBuf> {
    mounted(|_| true)
}

/// The one tree first. Of the others, those with these options of their mounts, among which are their controllers.
fn mounted(has: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let of_kind = |kind: &str, has: &dyn Fn(&str) -> bool| -> Vec<PathBuf> {
        let lines = mounts.lines().map(|line| line.split(' '));
        let lines = lines.filter_map(|mut words| {
            let path = words.nth(1)?;
            (words.next()? == kind && has(words.next()?)).then(|| path.into())
        });
        lines.collect()
    };
    let mut roots = of_kind("cgroup2", &|_| true);
    roots.extend(of_kind("cgroup", &has));
    roots
}

/// Those in which processes may be frozen.
static FREEZING: LazyLock<Vec<PathBuf>> =
    LazyLock::new(|| mounted(|options| options.split(',').any(|one| one == "freezer")));

/// Whether a process stands still by its control group, as by `docker pause`.
pub fn is_frozen(process: i32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup"));
    groups.is_ok_and(|groups| any_is_frozen(&FREEZING, &groups))
}

/// `groups`: as `/proc/PID/cgroup` has them, `NUMBER:CONTROLLERS:PATH`.
fn any_is_frozen(roots: &[PathBuf], groups: &str) -> bool {
    let is_frozen = |group: PathBuf| {
        let state = fs::read_to_string(group.join("freezer.state"));
        let events = fs::read_to_string(group.join("cgroup.events"));
        state.is_ok_and(|state| state.trim() != "THAWED")
            || events.is_ok_and(|events| events.lines().any(|line| line == "frozen 1"))
    };
    paths_with(groups, "freezer").any(|path| roots.iter().any(|root| is_frozen(root.join(path))))
}

/// The paths, below the roots, of the groups of a process that may have a controller; the line of the one tree names
/// none.
pub fn paths_with<'a>(groups: &'a str, controller: &'a str) -> impl Iterator<Item = &'a str> {
    let may_have = move |controllers: &str| {
        let mut each = controllers.split(',');
        each.any(|one| ["", controller].contains(&one))
    };
    groups.lines().filter_map(move |line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        may_have(controllers).then(|| path.trim_start_matches('/'))
    })
}

/// The control groups that `name` gives a name, with it, those above first.
fn groups(roots: &[PathBuf], name: impl Fn(&Path) -> Option<String>) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let mut left: Vec<(PathBuf, usize)> =
        roots.iter().rev().map(|root| (root.clone(), 0)).collect();
    while let Some((group, depth)) = left.pop() {
        found.extend(name(&group).map(|name| (name, group.clone())));
        if depth < DEEPEST {
            left.extend(below(&group).map(|group| (group, depth + 1)));
        }
    }
    found
}

fn below(group: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_directory).map(|entry| entry.path())
}

fn gather(group: &Path, depth: usize, members: &mut Vec<i32>) {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    members.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    if depth < DEEPEST {
        below(group).for_each(|group| gather(&group, depth + 1, members));
    }
}

/// `4f5e…` of `docker-4f5e….scope`, `libpod-4f5e…` or `4f5e…`; `web` of `lxc.payload.web`.
fn number_of_container(group: &str) -> Option<&str> {
    if let Some(name) = group.strip_prefix("lxc.payload.") {
        return Some(name);
    }
    let name = group.strip_suffix(".scope").unwrap_or(group);
    let number = name.rsplit(['-', ':']).next()?;
    // conmon watches a container, and is not in it.
    (is_number(number) && !name.contains("conmon")).then_some(number)
}

fn is_number(name: &str) -> bool {
    name.len() >= 12 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCKER: &str = "4f5e2a1b9c3d4f5e2a1b9c3d4f5e2a1b9c3d4f5e2a1b9c3d4f5e2a1b9c3d4f5e";
    const PODMAN: &str = "4f00aa11bb22cc33dd44ee55ff66aa77bb88cc99dd00ee11ff22aa33bb44cc55";

    fn tree() -> (tempfile::TempDir, [PathBuf; 1]) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_owned();
        for group in [
            "system.slice/nginx.service",
            "system.slice/postgresql.service/worker",
            &format!("system.slice/docker-{DOCKER}.scope"),
            &format!("machine.slice/libpod-{PODMAN}.scope/container"),
            &format!("machine.slice/libpod-conmon-{PODMAN}.scope"),
            "lxc.payload.web",
        ] {
            let mut path = root.clone();
            for part in group.split('/') {
                path.push(part);
                fs::create_dir_all(&path).unwrap();
                fs::write(path.join("cgroup.procs"), "").unwrap();
            }
        }
        (directory, [root])
    }

    fn group(found: Result<Membership>, roots: &[PathBuf]) -> String {
        match found {
            Ok(Membership::Group(path)) => {
                path.strip_prefix(&roots[0]).unwrap().display().to_string()
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn frozen_groups_of_both_kinds() {
        let (directory, roots) = tree();
        let frozen = |path: &str| any_is_frozen(&roots, &format!("7:freezer:{path}\n"));
        let write = |file: &str, text: &str| fs::write(directory.path().join(file), text).unwrap();
        assert!(!frozen("/") && !frozen("/lxc.payload.web") && !frozen("/none"));
        write("lxc.payload.web/freezer.state", "THAWED\n");
        assert!(!frozen("/lxc.payload.web"));
        write("lxc.payload.web/freezer.state", "FREEZING\n");
        assert!(frozen("/lxc.payload.web"));
        write("system.slice/cgroup.events", "populated 1\nfrozen 0\n");
        assert!(!frozen("/system.slice"));
        write("system.slice/cgroup.events", "populated 1\nfrozen 1\n");
        assert!(any_is_frozen(&roots, "0::/system.slice\n"));
        assert!(!any_is_frozen(&roots, "4:cpu,cpuacct:/system.slice\n"));
    }

    #[test]
    fn units_and_containers_are_found_by_their_groups() {
        let (_directory, roots) = tree();
        let unit = |name: &str| group(unit_below(&roots, name), &roots);
        assert_eq!(unit("nginx"), "system.slice/nginx.service");
        assert_eq!(unit("nginx.service"), "system.slice/nginx.service");
        assert_eq!(unit("system.slice"), "system.slice");
        assert!(
            unit("nginz").ends_with("the nearest is nginx"),
            "{}",
            unit("nginz")
        );
        let named = [("shop", PODMAN), ("gone", "0123456789abcdef")];
        let named = named.map(|(name, number)| (name.to_owned(), number.to_owned()));
        let container = |name: &str| group(container_below(&roots, name, &named), &roots);
        let docker = format!("system.slice/docker-{DOCKER}.scope");
        assert_eq!(container(DOCKER), docker);
        assert_eq!(container(&DOCKER[..12]), docker);
        assert_eq!(
            container(&PODMAN[..8]),
            format!("machine.slice/libpod-{PODMAN}.scope")
        );
        assert_eq!(container("web"), "lxc.payload.web");
        assert_eq!(container("shop"), container(PODMAN));
        assert!(container("gone").contains("no control group of its own"));
        assert!(container("shap").ends_with("the nearest is shop"));
        assert!(
            container("4f5f").ends_with("; the nearest are 4f00aa11bb22, 4f5e2a1b9c3d")
                || container("4f5f").ends_with("; the nearest is 4f5e2a1b9c3d"),
            "{}",
            container("4f5f")
        );
        // Too short, and none.
        assert!(container("4f").starts_with("there is no container"));
        assert!(container("0123456789ab").starts_with("there is no container"));
        let by_path = |path: &str| group(group_below(&roots, Path::new(path)), &roots);
        assert_eq!(
            by_path("/system.slice/nginx.service"),
            "system.slice/nginx.service"
        );
        let directory = roots[0].join("lxc.payload.web");
        assert_eq!(by_path(directory.to_str().unwrap()), "lxc.payload.web");
        assert!(by_path("/system.slice/nginy.service").contains("/system.slice/nginx.service"));
        let none = [PathBuf::from("/proc/self/no such")];
        assert!(group(unit_below(&none, "nginx"), &none).contains("systemd does not run here"));
    }

    #[test]
    fn docker_tells_names() {
        let directory = tempfile::tempdir().unwrap();
        for (number, text) in [
            (
                DOCKER,
                r#"{"MountPoints":{"/data":{"Name":"vol"}},"ID":"4f5e","Name":"/shop","Driver":"overlay2"}"#,
            ),
            (PODMAN, "broken"),
        ] {
            fs::create_dir(directory.path().join(number)).unwrap();
            fs::write(directory.path().join(number).join("config.v2.json"), text).unwrap();
        }
        let named: Vec<Named> = named_by_docker(directory.path()).collect();
        assert_eq!(named, [("shop".to_owned(), DOCKER.to_owned())]);
        assert_eq!(named_by_docker(Path::new("/none")).count(), 0);
    }

    #[test]
    fn members_of_a_group_are_those_below_it_too() {
        let (_directory, roots) = tree();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let own = std::process::id();
        let unit = roots[0].join("system.slice/postgresql.service");
        fs::write(
            unit.join("cgroup.procs"),
            format!("{own}\n{}\n0\n", child.id()),
        )
        .unwrap();
        fs::write(unit.join("worker/cgroup.procs"), "1\n").unwrap();
        let group = Membership::Group(unit);
        // Neither this process nor its child; the first of the machine is no stranger if it started this one.
        assert!(group.members().iter().all(|process| *process == 1));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn neither_this_process_nor_its_ancestors_have_a_name() {
        let own = name_of(std::process::id() as i32).unwrap();
        assert!(
            !Membership::Name(own)
                .members()
                .contains(&(std::process::id() as i32))
        );
        let parent = nopal_process::parent(std::process::id() as i32).unwrap();
        let name = name_of(parent).unwrap();
        assert!(!Membership::Name(name).members().contains(&parent));
        let error = Membership::named("no such program")
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("no process is named"), "{error}");
    }
}
