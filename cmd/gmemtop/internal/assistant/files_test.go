package assistant

import "testing"

// A file that is not there is named as in any other command: without the name of a system call.
func TestAFileThatIsNotThereIsNamed(t *testing.T) {
	_, err := NewFiles([]string{"nothere"})
	if err == nil || err.Error() != "nothere: no such file or directory" {
		t.Errorf("%v", err)
	}
}
