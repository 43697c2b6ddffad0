;; SBCL: code in memory, moved by the collector unless a word on a stack points to it; signals, conditions, threads.
(let ((hold (sb-ext:posix-getenv "HOLD"))) (loop while (and hold (not (probe-file hold)))))
(defun grow (n) (if (zerop n) nil (list (grow (1- n)) n (grow (1- n)))))
(defun total (tree) (if (null tree) 0 (+ (total (first tree)) (second tree) (total (third tree)))))
(defun deep (n f) (if (zerop n) (funcall f) (1+ (deep (1- n) f))))
(dotimes (i 20) (format t "~a~%" (total (grow 14))) (sb-ext:gc :full (zerop (mod i 5))))
(format t "~a~%" (loop for n below 3000 sum (handler-case (deep (mod n 60) (lambda () (error "told ~a" n))) (error () n))))
(format t "~a~%" (loop repeat 20 sum (let ((f (compile nil `(lambda (x) (+ x ,(random 1)))))) (sb-ext:gc) (funcall f 5))))
(format t "~a~%" (loop for n below 200 sum (handler-case (car (aref (vector n) 0)) (type-error () n))))
#+sb-thread
(format t "~a~%" (mapcar #'sb-thread:join-thread
  (loop for n below 4 collect (sb-thread:make-thread (lambda () (loop repeat 20 sum (length (sort (loop for i below 3000 collect (mod (* i 7919) 1009)) #'<))))))))
(format t "~a~%" (hash-table-count (let ((h (make-hash-table :test 'equal))) (dotimes (i 100000 h) (setf (gethash (format nil "~a" (mod i 997)) h) i)))))
(format t "~a~%" (catch 'done (deep 30 (lambda () (throw 'done "thrown")))))
