{ Free Pascal: its runtime asks for return addresses and frames. }
program own_stacks;
{$mode objfpc}{$H+}
uses {$ifdef unix}cthreads,{$endif} classes, sysutils;
type
  TWork = class(TThread)
    total: int64;
    procedure Execute; override;
  end;
function deep(n: integer): integer;
begin
  if n = 0 then raise exception.create('told');
  result := deep(n - 1) + 1;
end;
procedure TWork.Execute;
var i: integer; s: string;
begin
  for i := 1 to 3000 do
    try deep(i mod 40) except on e: exception do begin s := e.message + inttostr(i); total := total + length(s); end; end;
end;
var works: array[0..3] of TWork; i: integer; list: tstringlist; hold: string;
begin
  hold := getenvironmentvariable('HOLD');
  if hold <> '' then while not fileexists(hold) do;
  for i := 0 to 3 do begin works[i] := TWork.create(true); works[i].start; end;
  for i := 0 to 3 do begin works[i].waitfor; writeln(works[i].total); end;
  list := tstringlist.create;
  for i := 1 to 20000 do list.add(format('%d-%s', [(i * 7919) mod 10007, floattostr(i / 4)]));
  list.sort;
  writeln(list[0], ' ', list[list.count - 1], ' ', list.count);
  try writeln(strtoint('x')) except on e: econverterror do writeln(e.message); end;
  {$I-} chdir('/nowhere'); {$I+} writeln(ioresult <> 0);
end.
