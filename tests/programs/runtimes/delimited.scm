;; Guile: its continuations copy frames of its own stack and of C's, its collector scans stacks conservatively.
(define hold (getenv "HOLD"))
(let wait () (when (and hold (not (file-exists? hold))) (wait)))
(use-modules (ice-9 control) (ice-9 threads) (srfi srfi-1))

(define (deep n thunk) (if (zero? n) (thunk) (+ 1 (deep (- n 1) thunk))))

;; A generator by re-entrant continuations.
(define (tree->generator tree)
  (define return #f)
  (define (continue)
    (let loop ((tree tree))
      (cond ((null? tree) #f)
            ((pair? tree) (loop (car tree)) (loop (cdr tree)))
            (else (call/cc (lambda (rest) (set! continue (lambda () (rest #f))) (return tree))))))
    (return #f))
  (lambda () (call/cc (lambda (k) (set! return k) (continue)))))
(define next (tree->generator (iota 300)))
(display (let loop ((sum 0)) (let ((x (next))) (if x (loop (+ sum x)) sum)))) (newline)

;; Delimited ones, resumed through C's frames (sort calls back).
(define (yields n)
  (let loop ((i 0)) (if (< i n) (begin (shift k (cons i k)) (loop (+ i 1))) 'done)))
(display (let loop ((r (reset (yields 500))) (sum 0)) (if (pair? r) (loop ((cdr r) #f) (+ sum (car r))) sum))) (newline)
(display (fold (lambda (n sum) (+ sum (call/cc (lambda (out) (sort (iota 30) (lambda (a b) (if (= b 7) (out n) (> a b)))))))) 0
               (iota 300)))
(newline)

(display (fold (lambda (n sum) (+ sum (catch 'told (lambda () (deep (modulo n 40) (lambda () (throw 'told n)))) (lambda (key v) v)))) 0 (iota 3000)))
(newline)
(display (apply + (map join-thread (map (lambda (n) (call-with-new-thread (lambda () (length (sort (map (lambda (i) (modulo (* i 7919) 1009)) (iota 4000)) <))))) (iota 4)))))
(newline)
(define table (make-hash-table))
(do ((i 0 (+ i 1))) ((= i 40000)) (hash-set! table (number->string (modulo i 997)) (make-vector 10 i)))
(gc)
(display (hash-count (const #t) table)) (newline)
