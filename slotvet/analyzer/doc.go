// Package analyzer finds slots of package inflight that are not released.
//
// A slot counts against its limits until Release. One that is forgotten on some path costs capacity until the process
// ends. The analyzer follows each slot that a function takes along all paths through the function and reports
//
//   - a slot that is dropped: not assigned, or assigned to the blank identifier and not refused,
//   - a return that leaves a slot neither released, deferred, returned, stored, sent, captured by a closure nor passed on,
//   - a deferred release in a loop: the slots pile up until the function returns,
//   - a slot that is assigned over while it is held.
//
// A slot is taken by a method Acquire or TryAcquire of any type, by inflight.Take, and by each function, method or
// closure that returns a slot that it has taken. A function that returns a slot which stays somewhere else too, such as
// in a field, hands nothing over. The other methods of a slot, comparisons, logging and the assertions of tests do not
// count as passing it on.
//
// A comment with a reason silences it, for its line and the next; in the comment of a function or of the package, for all
// of the function or file:
//
//	//slotvet:ignore held until the process ends
package analyzer
