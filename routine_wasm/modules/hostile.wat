;; What the limits of a run are for. The first letter of the request says what is done: `l` loops for ever, `m` takes memory
;; without end, `r` calls itself without end. Anything else is a trap, and so is an empty request.
(module
  (memory (export "memory") 1)

  (func $deeper (param $depth i32) (result i32)
    (i32.add (i32.const 1) (call $deeper (i32.add (local.get $depth) (i32.const 1)))))

  (func (export "alloc") (param $length i32) (result i32)
    (i32.const 1024))

  (func (export "run") (param $at i32) (param $length i32) (result i64)
    (local $letter i32)
    (if (i32.eqz (local.get $length)) (then (unreachable)))
    (local.set $letter (i32.load8_u (local.get $at)))
    (if (i32.eq (local.get $letter) (i32.const 108))
      (then (loop $forever (br $forever))))
    (if (i32.eq (local.get $letter) (i32.const 109))
      (then (loop $more (drop (memory.grow (memory.size))) (br $more))))
    (if (i32.eq (local.get $letter) (i32.const 114))
      (then (drop (call $deeper (i32.const 0)))))
    (unreachable)))
