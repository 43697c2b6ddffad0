% GNU Prolog: native code that jumps only, with registers of its own.
:- initialization(main).
hold :- catch(environ('HOLD', File), _, fail), !, waited(File).
hold.
waited(File) :- ( file_exists(File) -> true ; waited(File) ).
deep(0) :- throw(told).
deep(N) :- N > 0, M is N - 1, deep(M), atom(told).
caught(N) :- D is N mod 50, catch(deep(D), told, true).
app([], L, L).
app([H|T], L, [H|R]) :- app(T, L, R).
nrev([], []).
nrev([H|T], R) :- nrev(T, S), app(S, [H], R).
queens(N, Qs) :- findall(I, between(1, N, I), L), permuted(L, Qs), safe(Qs).
permuted([], []).
permuted(L, [H|T]) :- select(H, L, R), permuted(R, T).
safe([]).
safe([Q|Qs]) :- apart(Q, Qs, 1), safe(Qs).
apart(_, [], _).
apart(Q, [R|Rs], D) :- Q =\= R + D, Q =\= R - D, E is D + 1, apart(Q, Rs, E).
times(0, _) :- !.
times(N, G) :- \+ \+ call(G), M is N - 1, times(M, G).
rounds(0) :- !.
rounds(N) :- caught(N), M is N - 1, rounds(M).
main :-
    hold,
    rounds(5000), write(caught), nl,
    findall(I, between(1, 400, I), L), times(50, nrev(L, _)), nrev(L, [E|_]), write(E), nl,
    queens(8, Qs), write(Qs), nl,
    findall(X, (between(1, 20000, I), X is (I * 7919) mod 1009), Xs), msort(Xs, S), last(S, Last), write(Last), nl,
    fd_domain([A, B], 1, 50), A * B #= 391, A #< B, fd_labeling([A, B]), write(A-B), nl,
    catch(atom_length(_, _), error(Error, _), (write(Error), nl)),
    halt.
