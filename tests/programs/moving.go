// A Go library for a program in C: its stacks move when they grow, and its collector scans them.
package main

import "C"
import "runtime"

func descend(left int) int {
	var room [512]byte
	room[left%len(room)] = 1
	if left == 0 {
		return 0
	}
	return descend(left-1) + int(room[left%len(room)])
}

//export GoWork
func GoWork(n C.long) C.long {
	results := make(chan int)
	for i := 0; i < 4; i++ {
		go func() { results <- descend(500) }()
	}
	sum := 0
	for i := 0; i < 4; i++ {
		sum += <-results
	}
	runtime.GC()
	return C.long(sum) + n
}

func main() {}
