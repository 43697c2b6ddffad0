/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The hooks of a Linux process: functions that the stubs in arch/ call, by the conventions described there.
 */
#ifndef NOPAL_HOOKS_H
#define NOPAL_HOOKS_H

#include "stubs.h"

void nopal_before_libraries(struct nopal_arguments *arguments);
void nopal_before_exec(struct nopal_arguments *arguments);
void nopal_before_exec_at(struct nopal_arguments *arguments);
void nopal_before_exec_descriptor(struct nopal_arguments *arguments);
void nopal_before_prctl(struct nopal_arguments *arguments);
void nopal_before_seccomp(struct nopal_arguments *arguments);
void nopal_before_signal_action(struct nopal_arguments *arguments);
void nopal_before_protect(struct nopal_arguments *arguments);
void nopal_before_move(struct nopal_arguments *arguments);
void nopal_before_system_call(struct nopal_arguments *arguments);

/* glibc's struct dl_find_object, for 64-bit pointers and unwinders that need only the table. */
struct nopal_found_object {
	uint64_t flags;
	uint64_t map_start;
	uint64_t map_end;
	uint64_t link_map;
	uint64_t eh_frame_header;
	uint64_t reserved[7];
};
typedef int nopal_find_object_function(uint64_t address, struct nopal_found_object *found);
int nopal_find_object(uint64_t address, struct nopal_found_object *found, nopal_find_object_function *original);

struct nopal_object_info;
typedef int nopal_object_callback(struct nopal_object_info *info, uint64_t size, void *data);
typedef int nopal_iterate_objects_function(nopal_object_callback *callback, void *data);
int nopal_iterate_objects(nopal_object_callback *callback, void *data, nopal_iterate_objects_function *original);

typedef int nopal_lock_all_function(int flags);
int nopal_lock_all(uint64_t flags, uint64_t unused, nopal_lock_all_function *original);

#endif
