# SQLite's public tests, file by file: the number of tests and of errors of each.
tests=$("$SOAK/sqlite-tests")
for test in "$tests"/test/{aggnested,alter,analyze,attach,autoinc,avtrans,between,bigrow,bind,blob,btree01,cast,check,coalesce,collate1,collate2,conflict,corrupt,count,crash8,createtab,cse,ctime,date,delete,descidx1,distinct,enc,eval,exists,expr,fkey1,fkey2,format4,fts3aa,fts3ab,fts3corrupt,func,hook,in,incrblob,index,indexedby,insert,insert2,instr,interrupt,intpkey,io,join,join2,journal1,json101,lastinsert,like,limit,lock,malloc3,misc1,misc2,misc3,notnull,null,orderby1,pager1,pagesize,pragma,printf,quote,randexpr1,rollback,rowid,rtree,savepoint,schema,select1,select2,select3,select4,select5,select6,select7,selectA,shared,sort,subquery,substr,table,tempdb,thread001,thread002,tkt1435,trans,trigger1,trigger2,types,unique,update,upsert1,utf16align,vacuum,view,vtab1,wal,wal2,where,where2,window1,with1,without_rowid1,zeroblob}.test; do
	[[ -e $test ]] || continue
	$RUN "$tests/testfixture" "$test" > out 2> said
	echo "${test##*/} $? $(grep -E 'errors out of' out)"
	grep "^!" out || true
done
