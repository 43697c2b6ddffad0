//! Servers, and other large programs, with the same results in every run.

use crate::{Row, row};
use nopal_tests::{Case, Program, compile, sources, target_directory};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const ROWS: &[Row] = &[
    row("PostgreSQL under pgbench", postgres).also_with_libs(),
    row("MariaDB with three clients", mariadb).also_with_libs(),
    // Sliced threads: with a frame for each thread, x264's output differs from run to run, also untraced.
    row("ffmpeg: H.264, two threads", || {
        let words = "-loglevel error -f rawvideo -pix_fmt yuv420p -s 320x240 -r 25 -i INPUT -threads 2 -c:v libx264 \
                     -preset fast -x264-params sliced-threads=1 -bitexact -f framemd5 -";
        piped(&video(), "/usr/bin/ffmpeg", words)
    })
    .also_with_libs(),
    row("ffmpeg: MPEG-4, two threads", || {
        let words = "-loglevel error -f rawvideo -pix_fmt yuv420p -s 320x240 -r 25 -i INPUT -threads 2 -c:v mpeg4 -bf 2 \
                     -bitexact -f framemd5 -";
        piped(&video(), "/usr/bin/ffmpeg", words)
    })
    .also_with_libs(),
    row("LibreOffice: text of a document", office).also_with_libs(),
    row("clang compiles C++", || compiler("/usr/bin/clang")).also_with_libs(),
    row("gcc compiles C++", || compiler("/usr/bin/g++")).also_with_libs(),
    row("OpenMP of gcc", || openmp("gcc")).also_with_libs(),
    row("OpenMP of clang", || openmp("clang")).also_with_libs(),
];

fn postgres() -> Case {
    let make = "d=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1) && mkdir -p \"$0\" && chown postgres \"$0\" && \
                setpriv --reuid postgres --regid postgres --clear-groups \"$d/initdb\" -D \"$0\" -A trust --no-sync";
    needs(&["/usr/lib/postgresql", "/usr/bin/pgbench", "/usr/bin/psql"]);
    served("postgres", make)
}

fn mariadb() -> Case {
    let make = "mariadb-install-db --no-defaults --user=root --datadir=\"$0\" --auth-root-authentication-method=normal";
    needs(&[
        "/usr/sbin/mariadbd",
        "/usr/bin/mariadb",
        "/usr/bin/mariadb-install-db",
    ]);
    served("mariadb", make)
}

fn office() -> Case {
    let program = "/usr/lib/libreoffice/program/soffice.bin";
    needs(&[program]);
    // A profile's first run ends when it has made the profile.
    let make = format!(
        "mkdir \"$0\" && cd \"$0\" && for i in $(seq 200); do echo \"<h2>$i</h2><p>$(seq $i)</p><table><tr><td>$i<td>b</table>\"; done >document.html && \
         export HOME=\"$0\" && for i in 1 2; do {program} --headless \"-env:UserInstallation=file://$0/profile\" --cat document.html; done; \
         test -e profile/user"
    );
    let template = made("office", &make);
    script("office.sh", [template.into()])
}

/// A server that begins with a directory that the shell has made at `$0`. It does not run as root.
fn served(name: &str, make: &str) -> Case {
    let template = made(name, make);
    let user = match name {
        "mariadb" => "mysql",
        name => name,
    };
    script(&format!("{name}.sh"), [template.into(), user.into()])
}

/// A program whose input arrives when it waits for it.
fn piped(input: &Path, program: &str, words: &str) -> Case {
    needs(&[program]);
    let words = words.split_whitespace().map(OsString::from);
    let program = [input.into(), program.into()];
    script("piped.sh", program.into_iter().chain(words))
}

fn compiler(program: &str) -> Case {
    let source = sources().join("services/templates.cc");
    piped(&source, program, "-x c++ -std=c++17 -O2 -S -o - INPUT")
}

/// Panics if one is missing: the result of a script without its programs would be the same each time.
fn needs(paths: &[&str]) {
    for path in paths {
        assert!(Path::new(path).exists(), "{path} is not installed");
    }
}

fn script(name: &str, words: impl IntoIterator<Item = OsString>) -> Case {
    let script = sources().join("services").join(name);
    // The second word has the script report that it waits.
    let first = [script.into_os_string(), "early".into()];
    Case::new(Program::installed("/bin/sh")).arguments(first.into_iter().chain(words))
}

fn openmp(compiler: &str) -> Case {
    let command = [compiler, "-std=gnu17", "-O2", "-g", "-fopenmp"];
    Case::new(compile("openmp.c", &command, &["-DHOLD"]))
}

/// Ten seconds of raw video.
fn video() -> PathBuf {
    let make = "ffmpeg -loglevel error -f lavfi -i testsrc2=s=320x240:r=25:d=10 -pix_fmt yuv420p -f rawvideo -y \"$0\"";
    made("video", make)
}

/// The file that a script has made at the path in its `$0`, kept for the next run.
fn made(name: &str, script: &str) -> PathBuf {
    let directory = target_directory().join("services");
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let path = directory.join(name);
    if !path.exists() {
        let made = Command::new("sh").args(["-c", script]).arg(&path).output();
        let made = made.expect("there is a shell");
        if !made.status.success() {
            let _ = std::fs::remove_dir_all(&path);
            panic!("{name}: {}", String::from_utf8_lossy(&made.stderr));
        }
    }
    path
}
