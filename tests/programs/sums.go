// Goroutines that grow their stacks, and a panic that is recovered from.
package main

import (
	"fmt"
	"os"
)

//go:noinline
func depth(n int) int {
	var room [64]int
	room[n%64] = n
	if n == 0 {
		return room[0]
	}
	return depth(n-1) + 1
}

func recovered() (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	panic("caught")
}

func main() {
	for file := os.Getenv("HOLD"); file != ""; {
		if _, err := os.Stat(file); err == nil {
			break
		}
	}
	results := make(chan int)
	for i := 0; i < 50; i++ {
		go func(i int) { results <- depth(i * 100) }(i)
	}
	sum := 0
	for i := 0; i < 50; i++ {
		sum += <-results
	}
	fmt.Println(sum, recovered())
}
