// Goroutines, channels, maps, garbage, panics that are recovered, stacks that grow and move, a subprocess: the same output in every run.
package main

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"time"
)

type node struct {
	left, right *node
	payload     []byte
}

func tree(depth int) *node {
	if depth == 0 {
		return &node{payload: make([]byte, 24)}
	}
	return &node{tree(depth - 1), tree(depth - 1), nil}
}

func (n *node) count() int {
	if n == nil {
		return 0
	}
	return 1 + n.left.count() + n.right.count()
}

//go:noinline
func deep(n int) int {
	var space [64]int
	space[n%64] = n
	if n == 0 {
		return 0
	}
	return space[n%64] - n + 1 + deep(n-1)
}

func risky(n int) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("recovered %v", r)
		}
	}()
	if n%3 == 0 {
		var m map[string]int
		m["x"] = n
	}
	if n%3 == 1 {
		var list []int
		_ = list[n]
	}
	return errors.New("plain")
}

func main() {
	var group sync.WaitGroup
	results := make(chan int, 64)
	for worker := 0; worker < 16; worker++ {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			for i := 0; i < 20; i++ {
				results <- tree(10).count() + deep(2000+worker)
			}
		}(worker)
	}
	go func() { group.Wait(); close(results) }()
	sum := 0
	for r := range results {
		sum += r
	}
	fmt.Println("sum", sum)
	words := map[string]int{}
	for i := 0; i < 20000; i++ {
		words[fmt.Sprintf("w%d", i*7919%101)]++
	}
	keys := make([]string, 0, len(words))
	for k := range words {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	fmt.Println(len(keys), keys[:3], words["w7"])
	for i := 0; i < 6; i++ {
		fmt.Println(risky(i))
	}
	var ticks int
	ticker := time.NewTicker(2 * time.Millisecond)
	for range ticker.C {
		runtime.GC()
		if ticks++; ticks == 20 {
			break
		}
	}
	out, err := exec.Command("/bin/echo", "from", "a", "child").Output()
	fmt.Print(string(out), err, "\n")
	stack := string(debug.Stack())
	fmt.Println(strings.Contains(stack, "main.main"), ticks)
}
