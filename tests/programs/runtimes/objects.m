/* Objective-C: message sends that jump, exceptions, blocks of autoreleased objects, threads. */
#import <Foundation/Foundation.h>
#include "../hard.h"
#include <unistd.h>

@interface Tree : NSObject {
	Tree *left, *right;
	long value;
}
- (id)initWithDepth:(int)depth;
- (long)sum;
@end

@implementation Tree
- (id)initWithDepth:(int)depth
{
	if ((self = [super init])) {
		value = depth;
		if (depth > 0) {
			left = [[Tree alloc] initWithDepth:depth - 1];
			right = [[Tree alloc] initWithDepth:depth - 1];
		}
	}
	return self;
}
- (void)dealloc
{
	[left release];
	[right release];
	[super dealloc];
}
- (long)sum
{
	return [left sum] + value + [right sum];
}
- (int)deep:(int)n
{
	if (n == 0) {
		[NSException raise:@"Told" format:@"of %d", n];
	}
	return [self deep:n - 1] + 1;
}
- (void)work:(NSConditionLock *)lock
{
	NSAutoreleasePool *pool = [NSAutoreleasePool new];
	NSMutableArray *list = [NSMutableArray array];
	for (int i = 0; i < 5000; i++) {
		[list addObject:[NSString stringWithFormat:@"%d", i * 7919 % 1009]];
	}
	[list sortUsingSelector:@selector(compare:)];
	[lock lock];
	value += [[list lastObject] intValue];
	[lock unlockWithCondition:[lock condition] + 1];
	[pool release];
}
- (long)value
{
	return value;
}
@end

int main(void)
{
	NSAutoreleasePool *pool = [NSAutoreleasePool new];
	for (int i = 0; i < 10; i++) {
		Tree *tree = [[Tree alloc] initWithDepth:13];
		printf("%ld\n", [tree sum]);
		[tree release];
	}
	Tree *one = [[[Tree alloc] initWithDepth:0] autorelease];
	int caught = 0;
	for (int i = 0; i < 2000; i++) {
		@try {
			[one deep:i % 40];
		} @catch (NSException *exception) {
			caught += [[exception reason] length];
		} @finally {
			caught++;
		}
	}
	printf("%d\n", caught);
	/* The lock is never released: a thread may still be within its unlockWithCondition. */
	NSConditionLock *lock = [[NSConditionLock alloc] initWithCondition:0];
	/* libobjc initialises classes when they are first used, and crashes where two threads do so at once. */
	[one work:[[[NSConditionLock alloc] initWithCondition:0] autorelease]];
	for (int i = 0; i < 4; i++) {
		[NSThread detachNewThreadSelector:@selector(work:) toTarget:one withObject:lock];
	}
	[lock lockWhenCondition:4];
	[lock unlock];
	printf("%ld\n", [one value]);
	NSMutableDictionary *counts = [NSMutableDictionary dictionary];
	for (int i = 0; i < 20000; i++) {
		NSNumber *key = [NSNumber numberWithInt:i % 997];
		[counts setObject:[NSNumber numberWithInt:[[counts objectForKey:key] intValue] + 1] forKey:key];
	}
	printf("%d\n", (int)[counts count]);
	[pool release];
	/* No destructors run, since they would run beside the ends of the threads. */
	fflush(stdout);
	_exit(0);
}
