;; The price of a parcel: the request is its weight in grams, the answer the price in cents, both as decimal digits. A parcel
;; of up to 100 kg costs 450 cents and one more for every 10 g. Anything else is a trap.
(module
  (memory (export "memory") 1)

  ;; The request lies behind the first 1024 bytes, which are the answer's.
  (func (export "alloc") (param $length i32) (result i32)
    (i32.const 1024))

  (func (export "run") (param $at i32) (param $length i32) (result i64)
    (local $end i32)
    (local $digit i32)
    (local $number i64)
    (local $out i32)
    (if (i32.eqz (local.get $length)) (then (unreachable)))
    (local.set $end (i32.add (local.get $at) (local.get $length)))
    (loop $read
      (local.set $digit (i32.sub (i32.load8_u (local.get $at)) (i32.const 48)))
      (if (i32.gt_u (local.get $digit) (i32.const 9)) (then (unreachable)))
      (local.set $number
        (i64.add (i64.mul (local.get $number) (i64.const 10)) (i64.extend_i32_u (local.get $digit))))
      (if (i64.gt_u (local.get $number) (i64.const 100000)) (then (unreachable)))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $read (i32.lt_u (local.get $at) (local.get $end))))
    (local.set $number (i64.add (i64.const 450) (i64.div_u (local.get $number) (i64.const 10))))
    (local.set $out (i32.const 1024))
    (loop $write
      (local.set $out (i32.sub (local.get $out) (i32.const 1)))
      (i32.store8 (local.get $out)
        (i32.add (i32.const 48) (i32.wrap_i64 (i64.rem_u (local.get $number) (i64.const 10)))))
      (local.set $number (i64.div_u (local.get $number) (i64.const 10)))
      (br_if $write (i64.ne (local.get $number) (i64.const 0))))
    (i64.or
      (i64.shl (i64.extend_i32_u (local.get $out)) (i64.const 32))
      (i64.extend_i32_u (i32.sub (i32.const 1024) (local.get $out))))))
