//! Members of structures and elements of arrays, fetched by their names in the source.

use nopal_tests::{Case, End, compile, passed, scratch};

#[test]
fn what_is_in_structures_is_fetched_by_its_names() {
    for (compiler, flags) in [
        ("g++", &["-O0"][..]),
        ("g++", &["-O2", "-gdwarf-4"]),
        ("g++", &["-O2", "-flto"]),
        ("clang++", &["-O0", "-gdwarf-5"]),
        ("clang++", &["-O2"]),
    ] {
        let how = format!("{compiler} {flags:?}");
        let program = compile("structures.cc", &[compiler, "-std=c++17", "-g"], flags);
        let place = format!("structures.cc:{}", program.line_of("// here"));
        let fetched = "request->origin request->name request->state request->kind request->own.length \
             request->head->length request->head->next->length request->all[1]->values[1] same.own.values[2] \
             x=global.own.grid[1][3] request->head->parts request->own.pair[1].first";
        let case = Case::new(program).options([
            "--probe",
            &format!("{place} new p fetch {fetched}"),
            "--block",
        ]);
        let traced = case.unchanged();
        assert_eq!(traced.ended.end, End::Code(0), "{how}");
        let expected: Vec<String> = (0..5)
            .map(|n| {
                let next = if n < 3 { "-3" } else { "?" };
                format!(
                    "p request_origin=1000 request_name=\"a name\" request_state=busy request_kind=\"kind\" \
                     request_own_length={n} request_head_length=7 request_head_next_length={next} \
                     request_all_1_values_1=-2 same_own_values_2=3 x=250 request_head_parts=\"ABCD\\u{{5}}\" \
                     request_own_pair_1_first=9"
                )
            })
            .collect();
        assert_eq!(passed(&traced.directory()), expected, "{how}");
    }
}

#[test]
fn a_small_structure_in_a_register_is_taken_apart() {
    let program = compile("structures.cc", &["g++", "-std=c++17", "-g"], &["-O2"]);
    let place = format!("structures.cc:{}", program.line_of("// here"));
    let probe = format!("{place} new p fetch small.low small.high");
    let traced = Case::new(program).options(["--probe", &probe]).traced();
    let expected = (0..5).map(|n| format!("p small_low={n} small_high={}", -n));
    assert!(
        passed(&traced.directory()).into_iter().eq(expected),
        "{}",
        traced.said
    );
}

#[test]
fn what_is_not_in_structures_is_refused_with_what_is() {
    let program = compile("structures.cc", &["g++", "-std=c++17", "-g"], &["-O2"]);
    let place = format!("structures.cc:{}", program.line_of("// here"));
    for (fetched, said) in [
        (
            "request->nam",
            "request has no member nam; the nearest is name",
        ),
        (
            "request->zzzzz",
            "request has no member zzzzz; it has origin, name, state",
        ),
        (
            "request->own.lenght",
            "request.own has no member lenght; the nearest is length",
        ),
        ("request->own.flag", "flag is a bit-field"),
        (
            "request->own",
            "request.own is a structure: choose a member of it: next, length, values",
        ),
        (
            "request->own.values",
            "request.own.values is an array: choose an element",
        ),
        (
            "request->own.values.length",
            "request.own.values is an array: choose an element",
        ),
        (
            "request->own.values[3]",
            "request.own.values has 3 elements",
        ),
        ("request->own.grid[1]", "request.own.grid[1] is an array"),
        (
            "request->own.length.x",
            "request.own.length is not a structure",
        ),
        ("n[0]", "n is not an array"),
        (
            "request->nothing[1]",
            "the target of request.nothing has no type",
        ),
        ("request->count", "request has no member count"),
        (
            "requst->name",
            "no variable is named requst here; the nearest is request",
        ),
    ] {
        let case =
            Case::new(program.clone()).options(["--probe", &format!("{place} fetch {fetched}")]);
        let refused = case.traced_start(&scratch().path().join("trace")).run("");
        assert!(
            refused.stderr.contains(said),
            "{fetched}: {}",
            refused.stderr
        );
        assert_eq!((refused.end, &*refused.stdout), (End::Code(1), ""));
    }
}
