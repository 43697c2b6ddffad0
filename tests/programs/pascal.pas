{$mode objfpc}
{ Work that Free Pascal's runtime does by hand: exceptions, setjmp and longjmp, threads, dynamic arrays. }
program pascal;
uses
  {$ifdef unix}cthreads,{$endif} SysUtils, Classes;
type
  TWorker = class(TThread)
    sum: int64;
    procedure Execute; override;
  end;
  TNode = class
    left, right: TNode;
    value: integer;
    destructor Destroy; override;
  end;
var destroyed: integer = 0;
destructor TNode.Destroy;
begin
  inc(destroyed); left.Free; right.Free; inherited Destroy;
end;
function build(depth: integer): TNode;
begin
  result := TNode.Create; result.value := depth;
  if depth > 0 then begin result.left := build(depth - 1); result.right := build(depth - 1); end;
end;
function risky(n: integer): integer;
begin
  if n mod 3 = 0 then raise Exception.CreateFmt('three %d', [n]);
  if n mod 5 = 0 then raise ERangeError.Create('five');
  result := n * 2;
end;
function guarded(n: integer): integer;
begin
  result := 0;
  try
    try
      result := risky(n);
    finally
      result := result + 1;
    end;
  except
    on e: ERangeError do result := -5;
    on e: Exception do result := -length(e.Message);
  end;
end;
procedure TWorker.Execute;
var i: integer; a: array of integer;
begin
  for i := 1 to 3000 do begin
    setlength(a, i mod 100 + 1);
    a[high(a)] := guarded(i);
    sum := sum + a[high(a)];
  end;
end;
var i, total: integer; w: array[1..4] of TWorker; env: jmp_buf; k: integer; jumps: integer = 0; s: ansistring; list: TStringList; all: int64;
procedure deep(n: integer);
begin
  if n = 0 then longjmp(env, 7);
  deep(n - 1);
  writeln('never');
end;
begin
  { Busy until the file exists, so that a tracer can be attached. }
  while (GetEnvironmentVariable('HOLD') <> '') and not FileExists(GetEnvironmentVariable('HOLD')) do;
  total := 0;
  for i := 1 to 5000 do total := total + guarded(i);
  writeln('total ', total);
  for i := 1 to 200 do begin
    k := setjmp(env);
    if k = 0 then deep(i mod 20) else jumps := jumps + k;
  end;
  writeln('jumps ', jumps);
  build(8).Free;
  writeln('destroyed ', destroyed);
  for i := 1 to 4 do w[i] := TWorker.Create(false);
  all := 0;
  for i := 1 to 4 do begin w[i].WaitFor; all := all + w[i].sum; w[i].Free; end;
  writeln('threads ', all);
  list := TStringList.Create;
  for i := 1 to 1000 do begin str(i * 7919 mod 1009, s); list.Add(s); end;
  list.Sort;
  writeln(list[0], ' ', list[999]);
  list.Free;
  try
    raise Exception.Create('at the end');
  except
    on e: Exception do writeln(e.Message, ' frames ', ExceptFrameCount > 0);
  end;
end.
