% SWI-Prolog: stacks that move, atoms' collector, threads, exceptions, delimited continuations.
:- initialization(main, main).
hold :- getenv('HOLD', File), !, waited(File).
hold.
waited(File) :- ( exists_file(File) -> true ; waited(File) ).
deep(0) :- throw(told).
deep(N) :- N > 0, M is N - 1, deep(M), atom(told).
caught(N) :- D is N mod 50, catch(deep(D), told, true).
nrev([], []).
nrev([H|T], R) :- nrev(T, S), append(S, [H], R).
work(N, Total) :- findall(X, (between(1, 20000, I), X is (I * 7919 * N) mod 1009), L), msort(L, S), sum_list(S, Total).
yields(0) :- !.
yields(N) :- shift(N), M is N - 1, yields(M).
resumed(0, S, S) :- !.
resumed(Goal, S0, S) :- reset(Goal, Ball, Rest), ( Rest == 0 -> S = S0 ; S1 is S0 + Ball, resumed(Rest, S1, S) ).
main :-
    hold,
    forall(between(1, 5000, N), caught(N)), writeln(caught),
    forall(between(1, 20, _), (numlist(1, 400, L), nrev(L, R), last(R, E), (E == 1 -> true ; writeln(wrong)))),
    garbage_collect, garbage_collect_atoms,
    findall(Id, (between(1, 4, N), thread_create((work(N, T), thread_exit(T)), Id, [])), Ids),
    maplist([Id, T]>>(thread_join(Id, exited(T))), Ids, Totals), writeln(Totals),
    resumed(yields(500), 0, Sum), writeln(Sum),
    forall(between(1, 30000, I), (atom_concat(atom, I, A), atom_length(A, _))),
    garbage_collect_atoms,
    length(Long, 200000), maplist(=(x), Long), sort(0, @>=, Long, Sorted), length(Sorted, Len), writeln(Len),
    catch(atom_length(_, _), error(Error, _), (print(Error), nl)).
