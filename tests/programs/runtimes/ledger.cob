       identification division.
       program-id. ledger.
       environment division.
       input-output section.
       file-control.
           select work-file assign to "work" sort status status-word.
       data division.
       file section.
       sd work-file.
       01 work-row.
          05 work-key pic 9(5).
       working-storage section.
       01 status-word pic xx.
       01 hold-file pic x(200).
       01 held pic 9 value 0.
       01 info pic x(64).
       01 i pic 9(7) comp.
       01 j pic 9(9) comp.
       01 total pic s9(15)v99 comp-3 value 0.
       01 rate pic 9(3)v9(4) value 1.0375.
       01 last-key pic 9(5).
       01 ended pic 9 value 0.
       01 text-line pic x(40).
       procedure division.
       main-part.
           accept hold-file from environment "HOLD"
           if hold-file not = spaces
              perform until held = 1
                 call "CBL_CHECK_FILE_EXIST" using hold-file info
                 if return-code = 0 move 1 to held end-if
              end-perform
              move 0 to return-code
           end-if.
           perform varying i from 1 by 1 until i > 200000
              compute total rounded = function mod(
                 function integer(total + i * rate) 1000003)
           end-perform.
           display total.
           sort work-file ascending key work-key
              input procedure fill-part
              output procedure take-part.
           display last-key.
           perform varying i from 1 by 1 until i > 20000
              move i to last-key
              string "row " last-key delimited by size into text-line
              inspect text-line replacing all "1" by "x"
           end-perform.
           display text-line.
           move 5 to return-code.
           stop run.
       fill-part.
           perform varying i from 1 by 1 until i > 20000
              compute j = function mod(i * 7919 10007)
              move j to work-key
              release work-row
           end-perform.
       take-part.
           perform until ended = 1
              return work-file at end move 1 to ended
                 not at end move work-key to last-key
              end-return
           end-perform.
