package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// patience is how long something that the server does by itself may take.
const patience = 30 * time.Second

// now is the check that is being made.
var now string

// check makes one check and prints a line for it.
func check(name string, made func()) {
	now = name
	made()
	fmt.Println("ok", name)
}

// wrong ends the program: what comes after the first wrong thing would only confuse.
func wrong(format string, values ...any) {
	fmt.Fprintf(os.Stderr, "WRONG %s: %s\n", now, fmt.Sprintf(format, values...))
	os.Exit(1)
}

// try returns what a call returned, which must not be an error.
func try[T any](value T, err error) T {
	done(err)
	return value
}

// done is try for calls that return nothing else.
func done(err error) {
	if err != nil {
		wrong("%v", err)
	}
}

func same[T comparable](what string, got, want T) {
	if got != want {
		wrong("%s is %v, not %v", what, got, want)
	}
}

// refused is for errors that a client tells apart, with one of the functions of apimachinery's errors.
func refused(what string, err error, is func(error) bool) {
	if err == nil {
		wrong("%s: done, and should have been refused", what)
	}
	if !is(err) {
		wrong("%s: another error than expected: %v", what, err)
	}
}

// until waits for a condition.
func until(ctx context.Context, what string, condition func() bool) {
	reached := func(context.Context) (bool, error) { return condition(), nil }
	if wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, reached) != nil {
		wrong("%s: not within %v", what, patience)
	}
}

// next is the next value of a channel: an event, a leader.
func next[T any](what string, values <-chan T) T {
	select {
	case value, open := <-values:
		if !open {
			wrong("%s: the channel is closed", what)
		}
		return value
	case <-time.After(patience):
		wrong("%s: not within %v", what, patience)
	}
	panic("wrong returned")
}
