/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The work of a resident program: statements on a small table in memory.
 */
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>

static void run(sqlite3 *database, const char *sql)
{
	if (sqlite3_exec(database, sql, NULL, NULL, NULL) == SQLITE_OK)
		return;
	fprintf(stderr, "sqlite: %s\n", sqlite3_errmsg(database));
	exit(1);
}

void *start_work(void)
{
	sqlite3 *database;
	if (sqlite3_open(":memory:", &database) != SQLITE_OK)
		exit(1);
	run(database, "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, amount INTEGER);"
		      "CREATE INDEX by_amount ON item (amount)");
	return database;
}

void work(void *database)
{
	run(database, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)"
		      "INSERT INTO item SELECT i, 'item ' || i, i % 10 FROM n;"
		      "SELECT sum(length(name)) FROM item WHERE amount = 7;"
		      "UPDATE item SET amount = amount + 1 WHERE id % 3 = 0;"
		      "DELETE FROM item");
}
