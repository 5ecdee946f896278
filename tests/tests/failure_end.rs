//! Who ignores return codes is ended by a failed collective: by default under the C ABI, on request under the Rust API.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use ccl_core::{DataType, ReduceOp};
use ccl_tests::failure::{die, failing_call};
use ccl_tests::{Group, Rank};
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_failure_ends_the_process_on_request() {
    let body = |rank: Rank| {
        let comm = rank.communicator();
        let stream = comm.stream(0).unwrap();
        let mut buffer = comm.alloc::<f32>(5000).unwrap();
        for _ in 0..6 {
            buffer.write(&stream, &[1.0; 5000]).unwrap();
            comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum, &stream).unwrap().wait().unwrap();
        }
        if rank.rank == 1 {
            std::thread::sleep(Duration::from_millis(100));
            die();
        }
        let error = failing_call(&rank, &comm, &mut buffer, &stream);
        // The process's end may come a moment after the error; nothing may come after that moment.
        std::thread::sleep(Duration::from_secs(10));
        rank.say(format_args!("outlived {error}"));
    };
    let group = Group::new("a_failure_ends_the_process_on_request", 3).env("CCLX_ON_ERROR", "abort");
    let ended = group.limit(Duration::from_secs(30)).run_with(body, |running| running.wait());
    for rank in [0, 2] {
        let ended = &ended[rank];
        assert_eq!(ended.status.signal(), Some(Signal::SIGABRT as i32), "rank {rank}: {}", ended.output);
        let messages: Vec<_> =
            ended.output.lines().filter(|line| line.contains("is gone") && !line.starts_with('[')).collect();
        let [message] = messages[..] else { panic!("rank {rank} said {messages:?}, not one message") };
        check_message(message, rank, 3, 1, "all_reduce #7 (5000 float32 sum)");
    }
}

fn check_message(message: &str, rank: usize, n: usize, dead: usize, collective: &str) {
    assert!(message.contains(&format!("rank {rank} of {n}: rank {dead} is gone (process ")), "{message}");
    assert!(message.contains(&format!("during {collective}")), "{message}");
    assert!(message.contains("the process ends"), "{message}");
}

/// A C caller as they are: it never looks at a return code, unless told to by a fifth argument.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct { char data[4096]; } unique_id;
typedef struct communicator *communicator;

static void *function(void *library, const char *name) {
    void *address = dlsym(library, name);
    if (!address) { fprintf(stderr, "no %s: %s\n", name, dlerror()); exit(3); }
    return address;
}

static float in[COUNT], out[COUNT];

int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 3; }
    const char *path = argv[2];
    int rank = atoi(argv[3]), ranks = atoi(argv[4]), looks = argc > 5;
    int (*get_id)(unique_id *) = function(library, "onecclGetUniqueId");
    int (*init)(communicator *, size_t, unique_id, int) = function(library, "onecclCommInitRank");
    int (*destroy)(communicator) = function(library, "onecclCommDestroy");
    int (*all_reduce)(const void *, void *, size_t, int, int, communicator, void *) = function(library, "onecclAllReduce");
    const char *(*last_error)(communicator) = function(library, "onecclGetLastError");
    unique_id id;
    if (rank == 0) {
        char temporary[4096];
        snprintf(temporary, sizeof temporary, "%s.part", path);
        if (get_id(&id)) return 4;
        FILE *file = fopen(temporary, "wb");
        if (!file || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) || rename(temporary, path)) return 4;
    } else {
        FILE *file = NULL;
        for (int turn = 0; turn < 2000 && !(file = fopen(path, "rb")); turn++) usleep(10000);
        if (!file || fread(&id, sizeof id, 1, file) != 1) return 4;
        fclose(file);
    }
    communicator comm = NULL;
    if (init(&comm, ranks, id, rank)) { fprintf(stderr, "init: %s\n", last_error(NULL)); return 5; }
    for (int i = 0; i < COUNT; i++) in[i] = (float)(rank + i % 7);
    for (int call = 0; call < 3; call++) {
        if (all_reduce(in, out, COUNT, FLOAT32, SUM, comm, NULL)) return 6;
        for (int i = 0; i < COUNT; i++)
            if (out[i] != (float)(ranks * (ranks - 1) / 2 + ranks * (i % 7))) return 7;
    }
    printf("ready\n");
    fflush(stdout);
    if (rank == 1) for (;;) pause();
    if (!looks) for (long call = 0; call < 1000000; call++) all_reduce(in, out, COUNT, FLOAT32, SUM, comm, NULL);
    int first = all_reduce(in, out, COUNT, FLOAT32, SUM, comm, NULL);
    const unsigned char *bytes = (const unsigned char *)out;
    for (size_t i = 0; i < sizeof out; i++) if (bytes[i] != 0xFF) return 8;
    int second = all_reduce(in, out, COUNT, FLOAT32, SUM, comm, NULL);
    printf("codes %d %d: %s\n", first, second, last_error(comm));
    destroy(comm);
    return 0;
}
"#;

/// The shared library that cargo built beside this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let beside = own.parent().unwrap().join("libcclx.so");
    assert!(beside.exists(), "{} is built as a dependency of this package", beside.display());
    beside
}

/// A folder of its own that goes when the test does.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ccl-tests-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn compile(&self) -> PathBuf {
        let (source, program) = (self.0.join("caller.c"), self.0.join("caller"));
        std::fs::write(&source, PROGRAM).unwrap();
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut command = Command::new(compiler);
        command.args(["-std=c99", "-D_GNU_SOURCE", "-Wall", "-Werror", "-O1", "-DCOUNT=4000"]);
        command.arg(format!("-DFLOAT32={}", DataType::Float32 as u32)).arg(format!("-DSUM={}", ReduceOp::Sum.code()));
        command.arg(&source).arg("-o").arg(&program).arg("-ldl");
        let done = command.output().expect("a C compiler, by the name of cc or in CC");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        program
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A C caller that is killed when this is dropped.
struct Caller(Child);

impl Caller {
    fn start(program: &Path, id: &Path, rank: usize, n: usize, looks: bool) -> Caller {
        let mut command = Command::new(program);
        command.arg(library()).arg(id).arg(rank.to_string()).arg(n.to_string());
        if looks {
            command.arg("looks").env("CCLX_ON_ERROR", "log");
        } else {
            command.env_remove("CCLX_ON_ERROR");
        }
        command.env("ZE_SOFT_DEVICES", n.to_string());
        Caller(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Its end, and what was left of its output.
    fn end(mut self, limit: Duration) -> (ExitStatus, String, String) {
        let until = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "a caller that still runs after {limit:?}");
            std::thread::sleep(Duration::from_millis(5));
        };
        let (mut out, mut err) = (String::new(), String::new());
        if let Some(stdout) = &mut self.0.stdout {
            stdout.read_to_string(&mut out).unwrap();
        }
        self.0.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (status, out, err)
    }

    fn await_ready(&mut self) {
        let mut line = String::new();
        BufReader::with_capacity(1, self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        if line != "ready\n" {
            let mut err = String::new();
            self.0.stderr.take().unwrap().read_to_string(&mut err).unwrap();
            panic!("{:?} said `{line}`: {err}", self.0.wait());
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills rank 1 of three C callers while the others call on.
fn c_callers(name: &str, looks: bool) -> Vec<(ExitStatus, String, String)> {
    let folder = Folder::new(name);
    let program = folder.compile();
    let id = folder.0.join("id");
    let mut callers: Vec<_> = (0..3).map(|rank| Caller::start(&program, &id, rank, 3, looks)).collect();
    for caller in &mut callers {
        caller.await_ready();
    }
    std::thread::sleep(Duration::from_millis(50));
    let mut victim = callers.remove(1);
    victim.0.kill().unwrap();
    victim.0.wait().unwrap();
    callers.into_iter().map(|caller| caller.end(Duration::from_secs(20))).collect()
}

#[test]
fn c_callers_who_ignore_codes_are_ended() {
    for (rank, (status, _, err)) in [0, 2].into_iter().zip(c_callers("ends", false)) {
        assert_eq!(status.signal(), Some(Signal::SIGABRT as i32), "rank {rank}: {err}");
        // A warning about the machine's Level Zero loader may come before it.
        let lines: Vec<_> = err.lines().filter(|line| !line.contains("|CCL_WARN|")).collect();
        let [message] = lines[..] else { panic!("rank {rank}, not one message: {err}") };
        check_message(message, rank, 3, 1, "all_reduce #4 (4000 float32 sum)");
    }
}

#[test]
fn c_callers_who_look_go_on() {
    for (rank, (status, out, err)) in [0, 2].into_iter().zip(c_callers("looks", true)) {
        assert_eq!(status.code(), Some(0), "rank {rank}: {out}{err}");
        assert!(out.starts_with("codes 2 2: "), "rank {rank}: {out}");
        assert!(out.contains("rank 1 is gone"), "rank {rank}: {out}");
        assert!(err.contains("rank 1 is gone") && err.contains("during all_reduce #4"), "rank {rank}: {err}");
    }
}
