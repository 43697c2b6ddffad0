//! The programs, by the difficulty they pose.

use crate::{Row, installed, row};
use nopal_tests::{Case, Program, compile, copies, library, nopal, sources, target_directory};

pub const ROWS: &[Row] = &[
    row("exceptions, also across libraries", || exceptions(&[])),
    row("exceptions out of signal handlers", || {
        let flags = ["-fnon-call-exceptions"];
        Case::new(cxx("non_call_exceptions", &flags)).refused("fault")
    }),
    row("an exception that meets noexcept", || terminate("noexcept")),
    row("an exception that ends a thread", || terminate("thread")),
    row("coroutines of C++20", || {
        Case::new(cxx("coroutines20", &["-std=c++20"]))
    }),
    row("longjmp", || plain("longjmp")),
    row("siglongjmp out of handlers", || plain("siglongjmp")),
    row("coroutines by ucontext", || plain("ucontext")),
    row("coroutines by hand", || plain("coroutines")),
    row("flows that share a stack", || plain("shared_stack")),
    row("flows that share a stack, as greenlet", || {
        Case::new(c("shared_stack", &["-DBY_DISTANCE", "-DHOLD"]))
    }),
    row("split stacks", || {
        Case::new(c("calls", &["-fsplit-stack", "-lm"]))
    }),
    row("handlers on sigaltstack", || plain("sigaltstack")),
    row("stacks of 16 KiB with guards", || plain("small_stacks")),
    row("25,000 stacks apart", || plain("many_stacks")),
    row("recursion 100,000 deep", || {
        plain("deep").options(["--block"])
    }),
    row("tail calls, mutual ones too", || plain("tail")),
    row("10,000 threads", || {
        plain("threads")
            .arguments(["10000", "200"])
            .options(["--block"])
    }),
    row("pthread_exit and cancellation", || {
        plain("cancel").options(["--block"])
    }),
    row("fork, of children too", || {
        plain("fork").options(["--block"])
    }),
    row("fork 300 times, and exec", || {
        plain("exec").arguments(["fork", "300"])
    }),
    row("vfork", || plain("exec").arguments(["vfork", "100"])),
    row("posix_spawn", || plain("exec").arguments(["spawn", "100"])),
    row("clone with shared memory", || plain("shared_clone")),
    row("clone with shared memory, side by side", || {
        plain("shared_clone").arguments(["beside"])
    }),
    row("exec from a thread", || {
        plain("exec").arguments(["thread", "1"])
    }),
    row("a chain of exec", || {
        plain("exec").arguments(["chain", "10"])
    }),
    row("dlopen and dlclose in a loop", || {
        let (_, library) = library("library.c");
        plain("dlopen")
            .arguments([library.as_os_str(), "300".as_ref()])
            .options(["--libs"])
    }),
    row("SIGTRAP, SIGSEGV, SIGPROF of its own", || {
        plain("own_traps").refused("trap")
    }),
    row("all signals blocked in handlers", || plain("signals")),
    row("all signals blocked", || plain("blocked")),
    row("all descriptors closed", || plain("close_all")),
    row("descriptors of the lowest numbers", || plain("lowest")).also_with_libs(),
    row("descriptors of a thread's own", || plain("own_descriptors")),
    row("text that may not be read", || plain("execute_only")),
    row("handlers while a ring is waited for", || {
        plain("ring_signals")
    }),
    row("signals to the own process group", || {
        plain("group_signals")
    }),
    row("strict seccomp", || plain("seccomp").arguments(["strict"])),
    row("a seccomp filter for all threads", || {
        plain("seccomp").arguments(["threads"])
    }),
    row("seccomp filters of threads of their own", || {
        plain("confined_threads")
    })
    .also_with_libs(),
    row("setuid, unshare", || plain("credentials")),
    row("not dumpable", || plain("undumpable")),
    row("mlockall", || plain("mlockall")),
    row("RLIMIT_AS", || plain("address_space").arguments(["exec"])),
    row("huge pages in text", || plain("huge_text")),
    row("asks for its caller", || plain("caller")),
    row("retpolines", || {
        Case::new(c(
            "calls",
            &["-mindirect-branch=thunk", "-mfunction-return=thunk", "-lm"],
        ))
    }),
    row("-O0", || calls(&["-O0"])),
    row("-O3 -flto", || calls(&["-O3", "-flto"])),
    row("-fomit-frame-pointer", || calls(&["-fomit-frame-pointer"])),
    row("-fcf-protection", || calls(&["-fcf-protection=full"])),
    row("-z relro -z now", || calls(&["-Wl,-z,relro,-z,now"])),
    row("linked by mold", || calls(&["-fuse-ld=mold"])),
    row("linked by lld", || calls(&["-fuse-ld=lld"])),
    row("stripped", || {
        Case::new(c("stripped", &["-s", "-rdynamic"]))
    }),
    row("IFUNC", || plain("indirect")),
    row("-static", || calls(&["-static"])),
    row("-static-pie", || calls(&["-static-pie"])),
    row("musl", || musl(&[])),
    row("musl, static", || musl(&["-static"])),
    row("address sanitizer", || calls(&["-fsanitize=address"])),
    row("thread sanitizer", || calls(&["-fsanitize=thread"])),
    row("undefined-behaviour sanitizer", || {
        calls(&["-fsanitize=undefined"])
    }),
    row("Rust, panics caught", || Case::new(rust("panics"))),
    row("Rust, a panic that ends it", || {
        Case::new(rust("panics")).arguments(["end"])
    }),
    row("Go", || Case::new(Program::installed(compile_go()))),
    row("a library of Go in a program of C", || {
        let build = "go build -buildmode=c-shared -o \"$2\" \"$0\"";
        plain("uses_go").arguments([compile("moving.go", &["sh", "-c", build], &[]).path])
    })
    .also_with_libs(),
    row("Node.js", || {
        installed("node").arguments(["-e", JAVASCRIPT])
    }),
    row("LuaJIT", || {
        installed("luajit").arguments([
            "-e",
            "local hold = os.getenv('HOLD'); while hold and not io.open(hold) do end \
             local s = 0; for i = 1, 1e7 do s = (s + i * i) % 1000003 end; print(s)",
        ])
    }),
    row("Java", || {
        let source = sources().join("Calls.java");
        installed("java").arguments(["-XX:+UseSerialGC".as_ref(), source.as_os_str()])
    })
    .also_with_libs(),
    row("gdb attached before", || {
        let gdb = ["gdb", "--batch", "-nx", "-p", "PROCESS", "-ex", "continue"];
        accompanied("early", "traced", &gdb)
    }),
    row("gdb attached after", || {
        let show = ["-ex", "bt", "-ex", "detach"];
        let gdb = [&["gdb", "--batch", "-nx", "-p", "PROCESS"], &show[..]].concat();
        accompanied("late", "traced", &gdb)
    }),
    row("perf record at the same time", || {
        let file = target_directory().join("hard-perf.data");
        let file = file.to_str().expect("a plain path");
        let perf = ["perf", "record", "-e", "cpu-clock", "-o", file];
        let process = ["-p", "PROCESS", "--", "sleep", "0.3"];
        accompanied("late", file, &[&perf, &process[..]].concat())
    }),
    row("a second session of nopal", || {
        let script = "d=$(mktemp -d) && \"$0\" attach -o $d/trace --for 300ms $1; rm -rf $d";
        let nopal = nopal().to_str().expect("a plain path");
        accompanied("late", "/", &["sh", "-c", script, nopal, "PROCESS"])
    }),
    row("greenlet", || {
        python("import greenlet\ng = greenlet.greenlet(lambda: print(sum(range(10))))\ng.switch()")
    }),
    row("gevent", || {
        python(
            "import gevent\njobs = [gevent.spawn(lambda n: (gevent.sleep(0), n * n)[1], n) \
             for n in range(100)]\ngevent.joinall(jobs)\nprint(sum(job.value for job in jobs))",
        )
    }),
    row("steps through itself, handlers recorded", || {
        plain("steps_itself")
            .arguments(["here"])
            .options(["--block"])
    }),
    row("steps through itself, on another stack", || {
        plain("steps_itself")
            .arguments(["aside"])
            .options(["--block"])
    }),
    row("FS set elsewhere by the kernel", || {
        plain("thread_pointer").options(["--block"])
    }),
    row("FS set elsewhere by an instruction", || {
        plain("thread_pointer")
            .arguments(["instruction"])
            .options(["--block"])
    }),
    row("return addresses used by hand", || {
        ["say", "compare", "compare_further", "carry_in"]
            .into_iter()
            .fold(plain("by_hand"), Case::refused)
    }),
    row("Free Pascal", || {
        Case::new(compile(
            "pascal.pas",
            &[
                "sh",
                "-c",
                "fpc -v0 -O2 -Xs- -FU\"$(dirname \"$2\")\" -o\"$2\" \"$0\" >&2",
            ],
            &[],
        ))
    }),
    row("a _dl_find_object of its own", || {
        Case::new(cxx("own_lookup", &["-DFIND_OBJECT"])).options(["--block"])
    }),
    row("a dl_iterate_phdr of its own", || {
        Case::new(cxx("own_lookup", &["-DITERATE"])).options(["--block"])
    }),
    row("an _Unwind_Find_FDE of its own", || {
        Case::new(cxx("own_lookup", &["-DFIND_FDE"])).options(["--block"])
    }),
    row("50 threads that vfork and execute 2,000 programs", || {
        plain("spawning").arguments(["50", "2000", "/bin/true"])
    }),
    row("30 threads that execute all kinds of programs", || {
        let path = |flags: &[&str]| c("kinds", flags).path.into_os_string();
        let mut killed = std::ffi::OsString::from("-");
        killed.push(path(&[]));
        let programs = [path(&[]), killed, path(&["-static"]), "/etc/passwd".into()];
        let words = ["30".into(), "10".into()].into_iter().chain(programs);
        plain("kinds").arguments(words)
    }),
    row("waits with timeouts", || plain("waits")),
    row("5,000 threads at once", || {
        plain("threads")
            .arguments(["5000", "5000"])
            .options(["--buffer", "400M"])
    }),
    row("system calls dispatched to the program", || {
        plain("dispatched").arguments(["outside"])
    })
    .also_with_libs(),
    row("all system calls dispatched, as in Wine", || {
        plain("dispatched").arguments(["all"])
    })
    .also_with_libs(),
    row("io_uring: reads that time out", || {
        plain("rings").arguments(["timeouts"])
    })
    .also_with_libs(),
    row("io_uring with threads of the kernel's", || plain("rings")).also_with_libs(),
    row("patches its own functions", || plain("patches")).also_with_libs(),
    row("follows jumps", || Case::new(c("follows", &["-rdynamic"]))),
    row("samples itself in a signal handler", || {
        plain("samples_itself")
    })
    .also_with_libs(),
    row("samples itself by frame pointers", || {
        Case::new(c("follows_frames", &["-fno-omit-frame-pointer"])).options(["--buffer", "1M"])
    })
    .also_with_libs(),
    row("copies and compares its own functions", || {
        plain("copied").refused("mixed").refused("added")
    })
    .also_with_libs(),
    row("handlers that share a frame", || {
        plain("handlers").options(["--block"])
    })
    .also_with_libs(),
    row("frames found by 32-bit distances", || plain("distances")).also_with_libs(),
    row("values in all kinds of places", || {
        Case::new(c("conventions", &["-lm"]))
    })
    .also_with_libs(),
    row("conventions of clang's own", || {
        let command = ["clang", "-std=gnu17", "-O2", "-g", "-DHOLD"];
        Case::new(compile("kept.c", &command, &[]))
    })
    .also_with_libs(),
    row("stacks that overflow", || plain("overflows")).also_with_libs(),
    row("restartable sequences", || plain("sequences")).also_with_libs(),
    row("32-bit code within", || {
        Case::new(c("narrow", &["-no-pie"]))
    })
    .also_with_libs(),
    row("unwind rows that are registered", || {
        Case::new(cxx("registered", &[]))
    })
    .also_with_libs(),
    row("sealed text", || plain("sealed")).also_with_libs(),
    row("memory never writable and executable", || {
        let (_, library) = library("library.c");
        plain("denied").arguments([library])
    })
    .also_with_libs(),
    row("stacks whose pages another thread releases", || {
        plain("released")
    })
    .also_with_libs(),
    row("asynchronous cancellation", || plain("cancelled")).also_with_libs(),
    row("libraries in namespaces of their own", || {
        let (_, library) = library("library.c");
        plain("namespaces").arguments([library])
    })
    .also_with_libs(),
    row("the parent waits for its vfork child", || {
        plain("vfork_waits")
    })
    .also_with_libs(),
    row("traces its parent and its children", || {
        plain("debugs_itself")
    })
    .also_with_libs(),
    row("linked by gold, equal functions merged", || {
        calls(&["-ffunction-sections", "-fuse-ld=gold", "-Wl,--icf=all"])
    }),
    row("text beside data", || calls(&["-Wl,-z,noseparate-code"])),
    row("relocations in text", || {
        // The jump is in its first instructions, where the code differs from the file.
        calls(&["-fno-pic", "-mcmodel=large", "-pie", "-Wl,-z,notext"]).refused("ascending")
    }),
    row("-mharden-sls -fzero-call-used-regs", || {
        calls(&["-mharden-sls=all", "-fzero-call-used-regs=all"])
    }),
    row("300 libraries, one after the other", || {
        let directory = copies("library.c", "plugin", 300);
        plain("plugins")
            .arguments([directory.as_os_str(), "300".as_ref()])
            .options(["--libs"])
    }),
];

const JAVASCRIPT: &str = "const hold = process.env.HOLD; \
     while (hold && !require('fs').existsSync(hold)); function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) } \
     try { null.x } catch (e) { console.log(e.constructor.name, fib(24)) }";

/// A program that can be held before its work, for a tracer to attach.
fn c(name: &str, flags: &[&str]) -> Program {
    nopal_tests::c(name, &[&["-DHOLD"], flags].concat())
}

fn cxx(name: &str, flags: &[&str]) -> Program {
    nopal_tests::cxx(name, &[&["-DHOLD"], flags].concat())
}

fn rust(name: &str) -> Program {
    nopal_tests::rust(name, &[])
}

fn plain(name: &str) -> Case {
    Case::new(c(name, &[]))
}

fn calls(flags: &[&str]) -> Case {
    let flags = [flags, &["-lm"]].concat();
    Case::new(c("calls", &flags))
}

fn musl(flags: &[&str]) -> Case {
    let command = ["musl-gcc", "-std=gnu17", "-O2", "-g", "-pthread", "-DHOLD"];
    Case::new(compile("tail.c", &command, flags))
}

fn terminate(way: &str) -> Case {
    Case::new(cxx("terminate", &[])).arguments([way])
}

fn exceptions(flags: &[&str]) -> Case {
    let (directory, _) = library("throws_through.cc");
    let directory = directory.to_str().expect("a plain path").to_owned();
    let (search, run) = (format!("-L{directory}"), format!("-Wl,-rpath,{directory}"));
    let library = [search.as_str(), "-lthrows_through", run.as_str()];
    Case::new(cxx("exceptions", &[&library, flags].concat()))
}

/// A program with another beside it that inspects it. The other's own functions are not traced.
fn accompanied(when: &str, sign: &str, command: &[&str]) -> Case {
    plain("accompanied")
        .arguments([&[when, sign], command].concat())
        .options(["-F", "work"])
}

fn python(script: &str) -> Case {
    let hold =
        "import os\nhold = os.environ.get('HOLD')\nwhile hold and not os.path.exists(hold): pass\n";
    installed("python3").arguments(["-c".to_owned(), format!("{hold}{script}")])
}

fn compile_go() -> std::path::PathBuf {
    compile("sums.go", &["sh", "-c", "go build -o \"$2\" \"$0\""], &[]).path
}
