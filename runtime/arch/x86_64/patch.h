/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Fields of the image that the tool fills in, and the place of the image. The section .nopal_patches lists them as
 * pairs {address of the field, kind}. The section .nopal_spare, which is not part of the image, holds the code that it
 * may put into two of them.
 */
#ifndef NOPAL_PATCH_H
#define NOPAL_PATCH_H

#define PATCH_MIRROR 1          /* 8 bytes: process.mirror */
#define PATCH_THREADS 2         /* 8 bytes: process.threads */
#define PATCH_THREAD_SLOT 3     /* 4 bytes: process.thread_slot */
#define PATCH_MARK 4            /* 4 bytes: bits 26..30 of every arena's address in this process */
#define PATCH_DEPTH_LIMIT 5     /* 4 bytes: process.depth_limit */
#define PATCH_ORDER 6           /* nopal_order, if events of several threads must be in order */
#define PATCH_POINTER 7         /* nopal_read_pointer, if the kernel lets programs use it */
#define PATCH_MAPPED 8          /* 4 bytes: those of the arena, from its begin on, that are certainly nopal's */

#define MARK_MASK 0x7c000000    /* arenas are 64 MiB, aligned, and equal in these bits */
#define ARENA_SHIFT 26

#endif
