%% BEAM: code made at run time with processes' stacks in its heap.
-module(messages).
-export([main/1]).
hold(false) -> ok;
hold(File) -> case filelib:is_file(File) of true -> ok; false -> hold(File) end.
ring(0, Last) -> Last;
ring(N, Next) -> ring(N - 1, spawn(fun() -> pass(Next) end)).
pass(Next) -> receive {token, 0} -> Next ! {token, 0}; {token, N} -> Next ! {token, N - 1}, pass(Next) end.
deep(0, F) -> F();
deep(N, F) -> 1 + deep(N - 1, F).
main(_) ->
  hold(os:getenv("HOLD")),
  Self = self(),
  First = ring(500, Self),
  First ! {token, 0},
  receive {token, Left} -> io:format("~p~n", [Left]) end,
  io:format("~p~n", [lists:sum([try deep(N rem 50, fun() -> throw(N) end) catch V -> V end || N <- lists:seq(1, 5000)])]),
  io:format("~p~n", [lists:sum(lists:sort([(I * 7919) rem 100003 || I <- lists:seq(1, 50000)]))]),
  Pids = [spawn_monitor(fun() -> exit(maps:size(maps:from_list([{I * N, I} || I <- lists:seq(1, 5000)]))) end) || N <- lists:seq(1, 50)],
  io:format("~p~n", [lists:sum([receive {'DOWN', _, process, Pid, Size} -> Size end || {Pid, _} <- Pids])]),
  io:format("~p~n", [erlang:phash2(re:replace(lists:duplicate(2000, "ab12"), "[0-9]+", "-", [global, {return, binary}]))]),
  erlang:garbage_collect(),
  io:format("~p~n", [byte_size(zlib:gunzip(zlib:gzip(binary:copy(<<"nopal">>, 100000))))]).
