package garbagecollector

// interned keeps one copy of each of its values for as long as somebody uses it, under a number that is smaller than a pointer. Namespaces and
// kinds come and go, so numbers are used again. The zero value is ready.
type interned[T comparable] struct {
	numbers map[T]uint32
	values  []T
	users   []uint32
	free    []uint32
}

// take returns the number of a value and counts a user of it.
func (t *interned[T]) take(value T) uint32 {
	if number, ok := t.numbers[value]; ok {
		t.users[number]++
		return number
	}
	var number uint32
	if last := len(t.free) - 1; last >= 0 {
		number, t.free = t.free[last], t.free[:last]
		t.values[number], t.users[number] = value, 1
	} else {
		number = uint32(len(t.values))
		t.values, t.users = append(t.values, value), append(t.users, 1)
	}
	if t.numbers == nil {
		t.numbers = map[T]uint32{}
	}
	t.numbers[value] = number
	return number
}

// drop counts a user less. With the last one the value is forgotten.
func (t *interned[T]) drop(number uint32) {
	if t.users[number]--; t.users[number] > 0 {
		return
	}
	delete(t.numbers, t.values[number])
	var none T
	t.values[number] = none
	t.free = append(t.free, number)
}

func (t *interned[T]) at(number uint32) T { return t.values[number] }
