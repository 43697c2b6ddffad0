use nopal_symbols::Image;

use crate::{Plan, Reason};

/// Functions that compilers make are traced: few are refused but for what they are.
#[test]
fn nearly_all_functions_of_installed_files_take_a_jump() {
    for path in super::installed() {
        let image = Image::open(&path).unwrap();
        let functions = image.functions().unwrap();
        let plan = Plan::make(&image).unwrap();
        assert_eq!(
            plan.sites.len() + plan.refused.len(),
            functions.len(),
            "{}",
            path.display()
        );
        let for_its_code = |reason: Reason| {
            let known = matches!(
                reason,
                Reason::OnlyJumpedTo | Reason::NotAnEntry | Reason::Resolver
            );
            !reason.is_by_name() && !known
        };
        let refused = plan
            .refused
            .iter()
            .filter(|refused| for_its_code(refused.reason))
            .count();
        let jumped_to = plan
            .refused
            .iter()
            .filter(|refused| refused.reason == Reason::OnlyJumpedTo)
            .count();
        let entries_only = plan
            .sites
            .iter()
            .filter(|site| site.entries_only.is_some())
            .count();
        println!(
            "{}: {} sites of {}, {entries_only} by their entries only, {refused} refused for their code, {jumped_to} only jumped to",
            path.display(),
            plan.sites.len(),
            functions.len()
        );
        assert!(refused * 1000 < functions.len() * 15, "{}", path.display());
        assert!(
            entries_only <= 1 + functions.len() / 200,
            "{}",
            path.display()
        );
        assert!(jumped_to * 100 < functions.len() * 5, "{}", path.display());
    }
}

#[test]
fn plans_are_sorted_and_always_the_same() {
    for path in super::installed() {
        let image = Image::open(&path).unwrap();
        let plan = Plan::make(&image).unwrap();
        assert_eq!(
            Plan::make(&Image::open(&path).unwrap()).unwrap(),
            plan,
            "{}",
            path.display()
        );
        assert!(plan.sites.is_sorted_by(|a, b| a.address < b.address));
        assert!(plan.hooks.is_sorted_by(|a, b| a.address < b.address));
        assert!(plan.refused.is_sorted_by(|a, b| a.address < b.address));
        // No jump reaches into another function's first byte.
        let ends = plan
            .sites
            .iter()
            .map(|site| site.address + u64::from(site.window));
        assert!(
            ends.zip(plan.sites.iter().skip(1))
                .all(|(end, next)| end <= next.address)
        );
    }
}

#[test]
fn what_is_special_in_libc_can_be_hooked() {
    let Some(path) = super::installed()
        .into_iter()
        .find(|path| path.ends_with("libc.so.6"))
    else {
        return;
    };
    let image = Image::open(&path).unwrap();
    let plan = Plan::make(&image).unwrap();
    let hooked = [
        ("longjmp", Reason::LeavesFrames),
        ("execve", Reason::ReplacesProgram),
        ("prctl", Reason::RestrictsCalls),
        ("dl_iterate_phdr", Reason::LoaderHook),
        ("dlsym", Reason::LooksAtCaller),
        ("swapcontext", Reason::SwitchesStack),
        ("_setjmp", Reason::ReturnsTwice),
        ("syscall", Reason::RawSystemCall),
    ];
    for (name, reason) in hooked {
        let address = image.symbol(name).unwrap();
        let refused = plan
            .refused
            .iter()
            .find(|refused| refused.address == address)
            .unwrap();
        assert_eq!(refused.reason, reason, "{name}");
        assert_eq!(plan.hook(address).unwrap().address, address, "{name}");
    }
    let ordinary = image.symbol("malloc").unwrap();
    assert_eq!(plan.hook(ordinary).unwrap().address, ordinary);
    assert_eq!(plan.hook(ordinary + 1), Err(None));
}

#[test]
fn the_loaders_hook_is_a_bare_return_and_can_be_hooked() {
    let Some(path) = ["/lib64/ld-linux-x86-64.so.2"]
        .into_iter()
        .find(|path| std::fs::exists(path).unwrap())
    else {
        return;
    };
    let image = Image::open(path.as_ref()).unwrap();
    let plan = Plan::make(&image).unwrap();
    let site = plan.hook(image.symbol("_dl_debug_state").unwrap()).unwrap();
    assert_eq!(
        site.body.map().len(),
        if site.expected()[0] == 0xc3 { 1 } else { 2 }
    );
    assert!(site.body.fixups().len() == 0);
    assert!(plan.hook(image.symbol("_dl_find_object").unwrap()).is_ok());
}
