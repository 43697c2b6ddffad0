/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * sqlite ROWS [ROUNDS [IDLE]]: inserts, selects and deletes ROWS rows of an indexed table in memory, ROUNDS times. Prints the
 * time in nanoseconds; a sum over the values read, which is the same each time; and the mean wall and processor time of the
 * rounds after the first second of processor time, or of the last round. With IDLE, it sleeps for so many milliseconds before
 * the first round, and also prints the moment at which each round ended, since the first began, and its processor time.
 */
#include "measure.h"
#include "sqlite3.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static sqlite3 *database;

static void check(int good)
{
	if (good)
		return;
	fprintf(stderr, "sqlite: %s\n", sqlite3_errmsg(database));
	exit(1);
}

static void run(const char *sql)
{
	check(sqlite3_exec(database, sql, NULL, NULL, NULL) == SQLITE_OK);
}

static sqlite3_stmt *prepare(const char *sql)
{
	sqlite3_stmt *statement;
	check(sqlite3_prepare_v2(database, sql, -1, &statement, NULL) == SQLITE_OK);
	return statement;
}

/* Every number below ROWS once, in a mixed order: ROWS is prime to the factor. */
static int64_t shuffled(int64_t i, int64_t rows)
{
	return i * 7919 % rows;
}

static void insert(int64_t rows)
{
	sqlite3_stmt *statement = prepare("INSERT INTO item (id, name, amount) VALUES (?1, ?2, ?3)");
	run("BEGIN");
	for (int64_t i = 0; i < rows; i++) {
		char name[32];
		int64_t id = shuffled(i, rows);
		int length = snprintf(name, sizeof name, "item %lld", (long long)id);
		sqlite3_bind_int64(statement, 1, id);
		sqlite3_bind_text(statement, 2, name, length, SQLITE_TRANSIENT);
		sqlite3_bind_int64(statement, 3, id % 1000);
		check(sqlite3_step(statement) == SQLITE_DONE);
		sqlite3_reset(statement);
	}
	run("COMMIT");
	sqlite3_finalize(statement);
}

static int64_t sum(sqlite3_stmt *statement)
{
	int64_t total = 0;
	int step;
	while ((step = sqlite3_step(statement)) == SQLITE_ROW)
		total += sqlite3_column_int64(statement, 0);
	check(step == SQLITE_DONE);
	sqlite3_reset(statement);
	return total;
}

static int64_t read_back(int64_t rows)
{
	int64_t total = 0;
	sqlite3_stmt *by_id = prepare("SELECT amount FROM item WHERE id = ?1");
	for (int64_t i = 0; i < rows; i++) {
		sqlite3_bind_int64(by_id, 1, shuffled(i, rows));
		total += sum(by_id);
	}
	sqlite3_finalize(by_id);
	sqlite3_stmt *by_amount = prepare("SELECT length(name) FROM item WHERE amount = ?1 ORDER BY name");
	for (int64_t amount = 0; amount < 1000; amount++) {
		sqlite3_bind_int64(by_amount, 1, amount);
		total += sum(by_amount);
	}
	sqlite3_finalize(by_amount);
	sqlite3_stmt *groups = prepare("SELECT count(*) * amount FROM item WHERE name LIKE '%7%' GROUP BY amount");
	total += sum(groups);
	sqlite3_finalize(groups);
	return total;
}

static void delete(int64_t rows)
{
	sqlite3_stmt *statement = prepare("DELETE FROM item WHERE id = ?1");
	run("BEGIN");
	for (int64_t i = 0; i < rows; i += 2) {
		sqlite3_bind_int64(statement, 1, shuffled(i, rows));
		check(sqlite3_step(statement) == SQLITE_DONE);
		sqlite3_reset(statement);
	}
	run("COMMIT");
	sqlite3_finalize(statement);
}

static int64_t round_of(int64_t rows)
{
	sqlite3_close(database);
	check(sqlite3_open(":memory:", &database) == SQLITE_OK);
	run("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, amount INTEGER);"
	    "CREATE INDEX by_amount ON item (amount)");
	insert(rows);
	int64_t total = read_back(rows);
	delete(rows);
	sqlite3_stmt *all = prepare("SELECT id FROM item");
	total += sum(all);
	sqlite3_finalize(all);
	return total;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	int64_t rows = atoll(argv[1]), rounds = argc > 2 ? atoll(argv[2]) : 1, total = 0, early = 0;
	int64_t idle = argc > 3 ? atoll(argv[3]) : 0;
	if (idle)
		usleep((useconds_t)idle * 1000);
	double start = nanoseconds(), clock_then = start, processor_then = 0;
	for (int64_t i = 0; i < rounds; i++) {
		/* Each round makes the same calls, so that their number follows from that of rounds. */
		double used = processor_nanoseconds(), now = nanoseconds();
		if (processor_then < 1e9) {
			early = i;
			clock_then = now;
			processor_then = used;
		}
		total = round_of(rows);
		if (idle)
			printf("ended_%lld %f\nprocessor_%lld %f\n", (long long)i, nanoseconds() - start, (long long)i,
			       processor_nanoseconds() - used);
	}
	double end = nanoseconds(), used = processor_nanoseconds();
	printf("time %f\nsum %lld\nprocessor %f\n", end - start, (long long)total, used);
	printf("time_then %f\nprocessor_then %f\n", (end - clock_then) / (rounds - early),
	       (used - processor_then) / (rounds - early));
	return 0;
}
