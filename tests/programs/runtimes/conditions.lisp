;; ECL and CLISP: Lisp over C's stack; conditions that jump, a collector that scans it.
(let ((hold #+ecl (ext:getenv "HOLD") #+clisp (ext:getenv "HOLD"))) (loop while (and hold (not (probe-file hold)))))
(defun grow (n) (if (zerop n) nil (list (grow (1- n)) n (grow (1- n)))))
(defun total (tree) (if (null tree) 0 (+ (total (first tree)) (second tree) (total (third tree)))))
(defun deep (n f) (if (zerop n) (funcall f) (1+ (deep (1- n) f))))
(dotimes (i 10) (format t "~a~%" (total (grow 12))) #+ecl (ext:gc t) #+clisp (ext:gc))
(format t "~a~%" (loop for n below 1000 sum (handler-case (deep (mod n 40) (lambda () (error "told ~a" n))) (error () n))))
(format t "~a~%" (loop for n below 200 sum (handler-case (car (aref (vector n) 0)) (type-error () n))))
(format t "~a~%" (hash-table-count (let ((h (make-hash-table :test 'equal))) (dotimes (i 20000 h) (setf (gethash (format nil "~a" (mod i 997)) h) i)))))
(format t "~a~%" (sort (loop for i below 50 collect (mod (* i 7919) 101)) #'<))
(format t "~a~%" (unwind-protect (catch 'done (deep 30 (lambda () (throw 'done "thrown")))) (format t "left~%")))
#+ecl-threads nil
#+(and ecl threads)
(format t "~a~%" (mapcar #'mp:process-join
  (loop for n below 4 collect (mp:process-run-function 'work (lambda () (loop repeat 5 sum (length (sort (loop for i below 2000 collect (mod (* i 7919) 1009)) #'<))))))))
(finish-output)
(ext:quit)
