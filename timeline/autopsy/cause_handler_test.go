package autopsy

import "testing"

const retrying = `def run(batch):
    try:
        out = model(batch)
        out.sum().backward()
    except TypeError:
        raise
    except RuntimeError as err:
        print(err)

        for part in batch.chunk(2):
            model(part).sum().backward()
        def later():
            return model(batch)
    else:
        step()
    finally:
        close()
    again = model(batch)
    with lock:
        return again
`

func TestLinesOfAnExceptBlockAreFound(t *testing.T) {
	all := handler{body: 3, except: 5}
	for line, want := range map[int]handler{
		3: {}, 6: all, 8: all, 11: all, 12: all, 13: {}, 15: {}, 17: {}, 18: {}, 20: {}, 0: {}, 99: {},
	} {
		if h, ok := handlerAt(retrying, line); ok != (want.body > 0) || ok && h != want {
			t.Errorf("line %d: %v %v, want %v", line, h, ok, want)
		}
	}
}
