# Statements of all kinds, and a check of the file afterwards.
cat > s.sql <<'END'
pragma journal_mode = wal;
create table t (a integer primary key, b text, c real);
create index i on t (b, c);
with recursive n(x) as (select 1 union all select x + 1 from n where x < 3000)
	insert into t select x, hex(x * 7919), x / 7.0 from n;
create virtual table words using fts5(text);
insert into words select b from t;
select count(*) from words where words match '3*';
create trigger r after delete on t begin insert into words values (old.b); end;
delete from t where a % 5 = 0;
select count(*), sum(a), max(b), total(c), group_concat(a % 9) from t where b glob '*A*' group by a % 4 order by 2 desc;
select a, rank() over (partition by a % 3 order by c desc) from t limit 50;
select json_extract('{"a":[1,2,{"b":3}]}', '$.a[2].b');
begin;
update t set b = b || 'x' where a < 500;
savepoint s;
delete from t;
rollback to s;
commit;
vacuum;
reindex;
select count(*) from t x join t y on x.a = y.a + 1 left join t z on z.b = y.b;
explain query plan select * from t where b = 'x';
pragma integrity_check;
select printf('%.10g', avg(c)) from t;
.dump t
END
$RUN sqlite3 data.db < s.sql | cksum
sqlite3 data.db 'pragma integrity_check; select count(*), sum(a), sum(length(b)) from t'
