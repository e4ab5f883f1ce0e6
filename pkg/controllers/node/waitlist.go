package node

// waitlist is the nodes of a zone that wait for a taint, first come first served. Its methods take a fixed time on average, except all and rejoin.
type waitlist struct {
	names []string       // from the first in line; empty where one has left
	left  int            // how many have left at the front since the line began
	place map[string]int // of each in line, counted since the line began
}

func newWaitlist() waitlist { return waitlist{place: map[string]int{}} }

func (l *waitlist) len() int { return len(l.place) }

// join puts a node at the end, if it is not in line, and returns how many are before it, counting some that have left.
func (l *waitlist) join(name string) (before int) {
	place, ok := l.place[name]
	if !ok {
		place = l.left + len(l.names)
		l.place[name] = place
		l.names = append(l.names, name)
	}
	return place - l.left
}

// rejoin puts a node that has left the front of the line back to the front.
func (l *waitlist) rejoin(name string) {
	l.left--
	l.place[name], l.names = l.left, append([]string{name}, l.names...)
}

// leave takes a node out of the line. It reports whether it was in it.
func (l *waitlist) leave(name string) bool {
	place, ok := l.place[name]
	if !ok {
		return false
	}
	delete(l.place, name)
	l.names[place-l.left] = ""
	for len(l.names) > 0 && l.names[0] == "" {
		l.names = l.names[1:]
		l.left++
	}
	return true
}

// first is the node whose turn is next, empty if nobody waits.
func (l *waitlist) first() string {
	if len(l.names) == 0 {
		return ""
	}
	return l.names[0]
}

// all are the nodes in line, in their order.
func (l *waitlist) all() []string {
	all := make([]string, 0, len(l.place))
	for _, name := range l.names {
		if name != "" {
			all = append(all, name)
		}
	}
	return all
}
