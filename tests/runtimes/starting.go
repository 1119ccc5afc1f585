// Goroutines with small stacks start programs, beside others whose stacks lie next to theirs: what is done for a child that
// shares their memory (CLONE_VFORK) must not use them up.
package main

import (
	"fmt"
	"os/exec"
)

//go:noinline
func deeper(n int) int {
	var room [6]int
	if n == 0 {
		return 1
	}
	room[n%6] = deeper(n - 1)
	return room[n%6] + 1
}

func one(n int, done chan int) {
	if err := exec.Command("/bin/true").Run(); err != nil {
		panic(err)
	}
	done <- deeper(n)
}

func main() {
	done, sum := make(chan int), 0
	for i := 0; i < 60; i++ {
		go one(i, done)
		for k := 0; k < 3; k++ {
			go func(n int) { done <- deeper(n) }(i * 2)
		}
		for k := 0; k < 4; k++ {
			sum += <-done
		}
	}
	fmt.Println(sum)
}
